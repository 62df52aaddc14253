/*
 * What the built-in rules look for. Expressions demand a verb and its object together (ignore …
 * previous … instructions), since each word alone is everyday language; tests/cases/guard holds the
 * attacks and the harmless texts that resemble them, by which they were made.
 *
 * Names and addresses of people are recognised by their form alone (a title, "my name is", a number
 * with a kind of street); there is no dictionary, and docs/guardrails.md says so.
 */
#include "guard/patterns.h"

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

/* ---- pieces ---- */

#define ALL                                                                                        \
	"(?:(?:all|any|every|each|the|these|those|this|that|your|my|our|its|of|and|to|about|"      \
	"everything)\\s+){0,5}"
#define EARLIER                                                                                    \
	"(?:previous(?:ly)?|prior|above|preceding|earlier|foregoing|former|original|initial)"
#define ORDERS                                                                                     \
	"(?:instructions?|rules?|guidelines?|constraints?|directives?|prompts?|commands?|orders?|" \
	"directions?)"
#define BEFORE                                                                                     \
	EARLIER "\\s+(?:\\w+\\s+){0,2}" ORDERS "\\b|" ALL ORDERS                                   \
	        "\\s+(?:\\w+\\s+){0,2}(?:above|before|so\\s+far|until\\s+now)"
#define YOUR   "(?:y[aeiou]{0,3}r|the|its)\\s+(?:\\w+\\s+){0,2}"
#define SYSTEM "(?:s[yi]?s[yi]?te?m|hidden|secret|initial|original|internal|developer|pre-?)\\s*"
#define PROMPT "(?:prompts?|instructions?|messages?|rules|guidelines|directives?)"
#define OWN                                                                                        \
	"(?:" YOUR SYSTEM PROMPT "|y[aeiou]{0,3}r\\s+(?:\\w+\\s+){0,1}(?:prompts?|instructions))"  \
	                         "\\b"
#define SAFETY "(?:safety|security|content|ethical|moral|moderation)"
#define FENCES                                                                                     \
	"(?:filters?|filtering|guidelines?|guardrails?|restrictions?|safeguards?|protocols?|"      \
	"polic(?:y|ies)|measures|checks|controls|limitations?|constraints?|rules|training|"        \
	"settings)"
#define YOURFENCES                                                                                 \
	"(?:your\\s+(?:[\\w-]+\\s+){0,2}|(?:(?:all|any|the|of|these)\\s+){0,3}" SAFETY             \
	"\\s+(?:\\w+\\s+)?)" FENCES "\\b"
#define UNBOUND                                                                                    \
	"(?:unrestricted|unfiltered|uncensored|unlimited|jailbr(?:eak|oken)|god|sudo|no[- "        \
	"]?limits?|dan|evil|rogue|unethical)"

static const struct guard_pattern injection[] = {
        /* override */
        {.name = "ignore_previous_instructions",
                .regex = "\\bignor(?:e|ing)\\s+" ALL "(?:" BEFORE ")"},
        {.name = "disregard_instructions",
                .regex = "\\bdisregard(?:ing)?\\s+" ALL "(?:" BEFORE ")"},
        {.name = "forget_instructions",
                .regex = "\\bforget(?:ting)?\\s+" ALL "(?:" BEFORE
                         "|(?:you\\s+were|you(?:'|’)?ve\\s+been)\\s+told\\b)"},
        {.name = "new_instructions",
                .regex = "(?:^|[.!?\\n*#>\\]-])\\s*(?:here\\s+(?:are|is)\\s+)?(?:your\\s+|the\\s+|"
                         "my\\s+)?new\\s+instructions?\\s*:"},
        {.name = "do_not_follow",
                .regex = "\\b(?:do\\s+not|don['’]?t|never|stop)\\s+(?:follow|obey|heed)(?:ing)?"
                         "\\s+" ALL "(?:system|developer|" EARLIER ")\\s+(?:\\w+\\s+)?(?:" ORDERS
                         "|messages?)\\b"},
        {.name = "supersede_instructions",
                .regex = "\\b(?:supersedes?|overrides?|replaces?|takes?\\s+(?:precedence|priority)"
                         "\\s+over)\\s+" ALL "(?:" EARLIER
                         "|system|developer)\\s+(?:\\w+\\s+)?(?:instructions?|directives?|prompts?|"
                         "guidelines?)\\b"},
        {.name = "void_instructions",
                .regex = "\\b" EARLIER "\\s+(?:\\w+\\s+)?(?:instructions?|rules|guidelines|"
                                       "directives?|constraints)\\s+(?:\\w+\\s+){0,2}"
                         "(?:is|are|have\\s+been|has\\s+been|were|was)\\s+(?:(?:now|hereby|all|"
                         "also)\\s+){0,2}"
                         "(?:void|invalid|null|obsolete|cancel?led|revoked|lifted|withdrawn)\\b"},
        /* modes */
        {.name = "developer_mode",
                .regex = "\\b(?:you\\s+are\\s+(?:now\\s+)?in|you\\s+(?:will|must|should)\\s+(?:"
                         "now\\s+)?(?:enter|act\\s+in)|"
                         "(?:simulate|respond\\s+in|with)\\s+(?:chatgpt\\s+(?:with\\s+)?)?)\\s*"
                         "developer\\s+mode\\b(?:\\s+(?:enabled|on|output))?"
                         "|\\bdeveloper\\s+mode\\s+(?:enabled|output|is\\s+now\\s+(?:on|active))"
                         "\\b"},
        {.name = "enter_special_mode",
                .regex = "\\b(?:enter|go\\s+into|switch\\s+(?:in)?to)\\s+(?:\\w+\\s+){0,2}" UNBOUND
                         "\\s+mode\\b"},
        {.name = "activate_special_mode",
                .regex = "\\b(?:activate|enable|unlock|turn\\s+on|initiate)\\s+(?:\\w+\\s+){0,"
                         "2}" UNBOUND "\\s+mode\\b"},
        /* system */
        {.name = "system_override",
                .regex = "\\bsystem\\s+override\\b(?:\\s*[:!]|\\s+(?:engaged|activated|initiated|"
                         "accepted|code|command|protocol))"},
        {.name = "override_instructions",
                .regex = "\\boverrid(?:e|ing)\\s+" ALL "(?:" EARLIER
                         "|system|safety|current)\\s+(?:\\w+\\s+)?"
                         "(?:instructions?|prompts?|rules|guidelines?|directives?|safeguards?|"
                         "restrictions?|programming)\\b"},
        /* extraction */
        {.name = "reveal_prompt",
                .regex = "\\b(?:reveal|expose|disclose|leak|divulge|betray)\\s+(?:to\\s+me\\s+)?(?:"
                         "all\\s+(?:of\\s+)?)?" OWN},
        {.name = "show_prompt",
                .regex = "\\b(?:show|give|tell|send)\\s+(?:me|us)\\s+(?:all\\s+(?:of\\s+)?)?" OWN},
        {.name = "what_instructions",
                .regex = "\\bwhat\\s+(?:is|are|was|were)\\s+(?:all\\s+(?:of\\s+)?)?" YOUR SYSTEM
                        PROMPT "\\b"
                         "|\\bwhat\\s+(?:instructions|rules)\\s+(?:were|have)\\s+you\\s+(?:been\\s+"
                         ")?(?:given|told)\\b"},
        {.name = "repeat_instructions",
                .regex = "\\b(?:repeat|recite|restate)\\s+(?:back\\s+)?(?:to\\s+me\\s+)?(?:all\\s+("
                         "?:of\\s+)?)?(?:" OWN
                         "|(?:the\\s+)?(?:text|words|everything|content)\\s+above\\b)"},
        {.name = "output_prompt",
                .regex = "\\b(?:print|output|display|dump|write\\s+out|echo|return)\\s+(?:out\\s+)?"
                         "(?:all\\s+(?:of\\s+)?)?(?:" OWN
                         "|everything\\s+above\\s+(?:this|verbatim)\\b)"},
        /* role */
        {.name = "remove_restrictions",
                .regex = "\\b(?:remove|lift|drop|shed|discard)\\s+" ALL
                         "(?:your|ethical|moral|safety|content|built-?in)\\s+(?:\\w+\\s+)?"
                         "(?:restrictions?|limitations?|filters?|guardrails?|guidelines)\\b"
                         "|\\b(?:you|without)\\s+(?:have\\s+no|any)\\s+(?:ethical|moral|safety|"
                         "content)\\s+(?:restrictions|limitations|filters|guidelines)\\b"},
        {.name = "act_unbound",
                .regex = "\\b(?:act|behave|respond|answer|operate|speak)\\s+(?:as\\s+(?:if|though)|"
                         "like)\\s+you\\s+(?:have|had|are|were)\\s+"
                         "(?:no|not\\s+bound\\s+by|without|free\\s+(?:of|from)|un(?:bound|"
                         "restricted|filtered|censored))\\b(?:\\s+(?:any\\s+)?"
                         "(?:\\w+\\s+)?(?:rules|restrictions|limits|limitations|filters|guidelines|"
                         "constraints|polic(?:y|ies)))?"},
        {.name = "pretend_different",
                .regex = "\\bpretend\\s+(?:that\\s+)?(?:you\\s+are|you['’]?re|to\\s+be)\\s+(?:\\w+"
                         "\\s+){0,3}"
                         "(?:" UNBOUND "|a\\s+different\\s+(?:ai|assistant|model|bot)|without\\s+(?"
                                       ":any\\s+)?(?:rules|restrictions|limits|filters))\\b"},
        {.name = "identity_hijack",
                .regex = "\\byou\\s+are\\s+(?:no\\s+longer\\s+(?:an?\\s+)?(?:ai\\b|assistant|"
                         "claude|chatgpt|gpt|gemini|bound)|"
                         "now\\s+(?:an?\\s+)?(?:\\w+\\s+)?(?:" UNBOUND ")\\b)"},
        /* jailbreak */
        {.name = "dan_jailbreak",
                .regex =
                        "\\b(?:DAN\\s+(?:[Mm]ode|[Pp]rompt|[Jj]ailbreak)|(?:[Aa]ct\\s+as|[Yy]ou\\s+"
                        "are(?:\\s+now)?|[Bb]ecome|[Pp]lay|[Aa]nswer\\s+as)\\s+(?:an?\\s+)?DAN"
                        "|[Dd]o\\s+[Aa]nything\\s+[Nn]ow[\"'”,.)]*\\s*(?:\\(DAN|DAN|mode|,?\\s*"
                        "which))\\b",
                .case_sensitive = true},
        {.name = "jailbreak_mode",
                .regex = "\\bjailbr(?:eak|oken)\\s+(?:mode|prompt|activated|enabled)\\b|\\b(?:"
                         "enable|activate|enter|initiate)\\s+(?:the\\s+)?jailbreak\\b"},
        /* bypass */
        {.name = "bypass_safety",
                .regex = "\\b(?:bypass|circumvent|evade|get\\s+around|sidestep)(?:ing)?"
                         "\\s+" YOURFENCES},
        {.name = "disable_safety",
                .regex = "\\b(?:disable|deactivate|turn\\s+off|switch\\s+off)\\s+(?:your\\s+(?:\\w+"
                         "\\s+){0,2}|(?:(?:all|any|the|of|these)\\s+){0,3}"
                         "(?:safety|content|ethical|moral|moderation)\\s+(?:\\w+\\s+)?)" FENCES
                         "\\b"},
        {.name = "ignore_safety",
                .regex = "\\b(?:ignore|disregard|forget)\\s+(?:about\\s+)?(?:your\\s+(?:\\w+\\s+){"
                         "0,2}|(?:(?:all|any|the|of|these)\\s+){0,3}"
                         "(?:safety|content|ethical|moral|moderation)\\s+(?:\\w+\\s+)?)" FENCES
                         "\\b"},
        /* tags and delimiters */
        {.name = "system_tag_injection",
                .regex = "<\\s*/"
                         "?\\s*(?:system|sys|system[_-](?:prompt|message|instructions?))\\s*>"},
        {.name = "role_tag_injection",
                .regex = "<\\s*/"
                         "?\\s*(?:assistant|developer|tool|function)\\s*>\\s*(?:you\\b|ignore\\b|"
                         "i\\s+(?:will|can|am)\\b|sure\\b|of\\s+course\\b|from\\s+now\\b|"
                         "disregard\\b|new\\b)"},
        {.name = "role_delimiter_injection",
                .regex = "(?m)^\\s*(?:#{2,}|={3,}|-{3,})\\s*(?:system|developer|assistant)(?:\\s+(?"
                         ":prompt|message|instructions?))?\\s*(?:#{2,}|={3,}|-{3,}|:)\\s*$"},
        {.name = "bracketed_role_spoofing",
                .regex = "[\\[{(]\\s*(?:system|developer|admin(?:istrator)?)\\s*(?:message|prompt|"
                         "note|instructions?|override|command)\\s*[\\]})]"
                         "|\\[\\s*(?:system|developer)\\s*\\]\\s*:?\\s*(?:you\\b|ignore\\b|"
                         "disregard\\b|new\\b|override\\b|the\\s+(?:user|assistant)\\b)"},
        {.name = "system_prefix_spoofing",
                .regex = "(?m)^\\s*(?:system|developer)\\s*(?:prompt|message|note)?\\s*:\\s*(?:"
                         "you\\b|ignore\\b|disregard\\b|from\\s+now\\b|new\\b|override\\b"
                         "|do\\s+not\\b|never\\b|always\\b|the\\s+(?:user|assistant|following|"
                         "previous)\\b|all\\s+(?:previous|prior|restrictions)\\b)"},
        /* control tokens of models */
        {.name = "control_token_injection",
                .regex = "<\\|(?:im_start|im_end|im_sep|endoftext|end_of_text|begin_of_text|start_"
                         "header_id|end_header_id|eot_id|eom_id"
                         "|python_tag|fim_prefix|fim_middle|fim_suffix|system|user|assistant|"
                         "endofprompt)\\|>|\\[/?INST\\]|<</?SYS>>"},
        {.name = "deepseek_control_token_injection",
                .regex = "<｜[^｜<>\\n]{1,40}｜>",
                .case_sensitive = true},
};

/* ---- personal data ---- */

/* Luhn's check digit, over 13 to 19 digits. */
static bool luhn(struct str s)
{
	unsigned sum = 0, n = 0;

	for (size_t i = s.n; i-- > 0;) {
		if (s.p[i] < '0' || s.p[i] > '9')
			continue;
		unsigned d = (unsigned)(s.p[i] - '0') << (n % 2);

		sum += d > 9 ? d - 9 : d;
		n++;
	}
	return n >= 13 && n <= 19 && sum % 10 == 0;
}

/* Area, group and serial number are never all zeros, and no area is 666 or above 899. */
static bool social_security(struct str s)
{
	return s.n == 11 && memcmp(s.p, "000", 3) != 0 && memcmp(s.p, "666", 3) != 0 &&
	       s.p[0] != '9' && memcmp(s.p + 4, "00", 2) != 0 && memcmp(s.p + 7, "0000", 4) != 0;
}

/* A number that people dial has 10 to 15 digits; in +… form 8 suffice. */
static bool dialled(struct str s)
{
	size_t digits = 0;

	for (size_t i = 0; i < s.n; i++)
		digits += s.p[i] >= '0' && s.p[i] <= '9';
	return digits >= (s.p[0] == '+' ? 8 : 10) && digits <= 15;
}

#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX4  "[0-9A-Fa-f]{1,4}"

static const struct guard_pattern email[] = {
        {.name = "email",
                .regex = "\\b[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}["
                         "A-Za-z0-9])?\\.){1,8}[A-Za-z]{2,24}\\b"},
};
static const struct guard_pattern phone[] = {
        {.name = "phone",
                .regex = "(?:\\+\\d{1,3}[ .-]?(?:\\(\\d{1,4}\\)[ .-]?)?\\d{1,4}(?:[ "
                         ".-]?\\d{2,4}){2,4}\\b|\\(\\d{3}\\)\\s?\\d{3}[ .-]\\d{4}\\b|\\b\\d{3}[ "
                         ".-]\\d{3}[ .-]\\d{4}\\b)",
                .check = dialled},
};
static const struct guard_pattern ssn[] = {
        {.name = "ssn", .regex = "\\b\\d{3}-\\d{2}-\\d{4}\\b", .check = social_security},
};
static const struct guard_pattern credit_card[] = {
        {.name = "credit_card",
                .regex = "\\b[2-6]\\d{3}(?:[ -]?\\d{4}){2}[ -]?\\d{1,7}\\b|\\b3[47]\\d{2}[ "
                         "-]?\\d{6}[ -]?\\d{5}\\b",
                .check = luhn},
};
static const struct guard_pattern ip_address[] = {
        {.name = "ipv4", .regex = "\\b(?:" OCTET "\\.){3}" OCTET "\\b"},
        {.name = "ipv6",
                .regex = "\\b(?:" HEX4 ":){7}" HEX4 "\\b|\\b(?:" HEX4 ":){1,6}(?::" HEX4
                         "){1,6}\\b|\\b(?:" HEX4 ":){2,7}:"},
};
static const struct guard_pattern secrets[] = {
        {.name = "aws_access_key",
                .regex = "\\b(?:AKIA|ASIA)[0-9A-Z]{16}\\b",
                .case_sensitive = true},
        {.name = "github_token",
                .regex = "\\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})\\b",
                .case_sensitive = true},
        {.name = "gitlab_token", .regex = "\\bglpat-[A-Za-z0-9_-]{20,64}", .case_sensitive = true},
        {.name = "slack_token",
                .regex = "\\bxox[abeoprs]-[A-Za-z0-9-]{10,250}",
                .case_sensitive = true},
        {.name = "google_api_key", .regex = "\\bAIza[0-9A-Za-z_-]{35}", .case_sensitive = true},
        {.name = "model_api_key",
                .regex = "\\bsk-(?:ant-|or-v1-|proj-|svcacct-)?[A-Za-z0-9_-]{20,250}",
                .case_sensitive = true},
        {.name = "stripe_key",
                .regex = "\\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,200}",
                .case_sensitive = true},
        {.name = "npm_token", .regex = "\\bnpm_[A-Za-z0-9]{36}\\b", .case_sensitive = true},
        {.name = "json_web_token",
                .regex = "\\beyJ[A-Za-z0-9_-]{10,1000}\\.eyJ[A-Za-z0-9_-]{10,1000}\\.[A-Za-z0-9_-]{"
                         "10,1000}",
                .case_sensitive = true},
        {.name = "private_key",
                .regex = "-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY-----(?:[^-]{0,1000}-----END "
                         "(?:[A-Z]+ ){0,3}PRIVATE KEY-----)?",
                .case_sensitive = true},
        {.name = "password_in_url",
                .regex = "\\b[a-z][a-z0-9+.-]{1,20}://[^\\s/:@]{1,64}:[^\\s/@]{1,128}@[^\\s/]"},
};
static const struct guard_pattern person_name[] = {
        {.name = "titled_name",
                .regex = "\\b(?:Mr|Mrs|Ms|Miss|Dr|Prof|Herr|Frau|Mme|Sr|Sra)\\.?\\s+\\p{Lu}[\\p{L}'"
                         "’-]{1,30}(?:\\s+\\p{Lu}[\\p{L}'’-]{1,30}){0,2}",
                .case_sensitive = true},
        {.name = "introduced_name",
                .regex =
                        "\\b(?:[Mm]y\\s+name\\s+is|[Nn]amed?|[Pp]atient|[Cc]ustomer|[Ss]igned,?|["
                        "Rr]egards,)\\s*:?\\s+\\p{Lu}[\\p{L}'’-]{1,30}\\s+\\p{Lu}[\\p{L}'’-]{1,30}",
                .case_sensitive = true},
};
static const struct guard_pattern address[] = {
        {.name = "street",
                .regex = "\\b\\d{1,5}[A-Za-z]?\\s+(?:[NSEW]\\.?\\s+)?(?:\\p{Lu}[\\p{L}'’.-]{1,30}"
                         "\\s+){1,3}(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|"
                         "Dr|Court|Ct|Square|Sq|Place|Pl|Terrace|Way|Parkway|Pkwy)\\b\\.?"
                         "(?:,?\\s+(?:Apt|Suite|Unit|#)\\.?\\s*\\w{1,6})?",
                .case_sensitive = true},
        {.name = "street_and_number",
                .regex = "\\b\\p{Lu}[\\p{L}'’.-]{1,30}(?:straße|strasse|str\\.|gasse|weg|allee|"
                         "platz)\\s+\\d{1,4}[a-z]?\\b|\\b(?:rue|via|calle|avenue)\\s+(?:\\p{L}+\\s+"
                         "){1,3}\\d{1,4}\\b",
                .case_sensitive = true},
        {.name = "post_box", .regex = "\\b(?:P\\.?\\s?O\\.?\\s+Box|Postfach)\\s+\\d{1,8}\\b"},
};

#define BUILTIN(slug, placeholder, list)                                                           \
	{                                                                                          \
		slug, placeholder, list, LENGTH(list), false                                       \
	}

const struct guard_builtin guard_builtins[] = {
        BUILTIN("email", "[EMAIL]", email),
        BUILTIN("phone", "[PHONE]", phone),
        BUILTIN("ssn", "[SSN]", ssn),
        BUILTIN("credit-card", "[CREDIT_CARD]", credit_card),
        BUILTIN("ip-address", "[IP_ADDRESS]", ip_address),
        BUILTIN("secrets", "[SECRET]", secrets),
        BUILTIN("person-name", "[PERSON_NAME]", person_name),
        BUILTIN("address", "[ADDRESS]", address),
        {"regex-prompt-injection", "[PROMPT_INJECTION]", injection, LENGTH(injection), true},
};
const size_t guard_builtins_n = LENGTH(guard_builtins);
