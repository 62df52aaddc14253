// A browser at the page of a real brig. Everything that the browser complains about is kept: console errors, uncaught errors,
// violations of the page's policy; a test ends by asserting that there was nothing.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

import { chromium } from "playwright-core";

export const SHOTS = process.env.BRIG_PAGE_SHOTS || path.join(import.meta.dirname, "screenshots");
const CHROMIUM = process.env.BRIG_CHROMIUM || "/usr/bin/chromium";

export async function browser() {
  fs.mkdirSync(SHOTS, { recursive: true });
  // Root may not use Chromium's own sandbox, and tests run as root.
  return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb"] });
}

export class Page {
  complaints = [];
  /** Addresses whose refusals the browser may log: those that a test asks for on purpose. */
  expected = [];

  static async open(chrome, brig, { theme = "light", width = 1280, height = 800 } = {}) {
    const self = new Page();
    self.brig = brig;
    self.context = await chrome.newContext({ viewport: { width, height }, colorScheme: theme, locale: "en-GB", timezoneId: "UTC", acceptDownloads: true });
    self.page = await self.context.newPage();
    const { page } = self;
    page.setDefaultTimeout(60_000);
    await page.addInitScript(() => {
      window.violations = [];
      addEventListener("securitypolicyviolation", (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`));
    });
    page.on("console", (message) => {
      if (!["error", "warning"].includes(message.type())) return;
      const { url } = message.location();
      if (message.text().startsWith("Failed to load resource") && self.expected.some((e) => url.includes(e))) return;
      self.complaints.push(`${message.type()}: ${message.text()} (${url})`);
    });
    page.on("pageerror", (error) => self.complaints.push(`uncaught: ${error.stack ?? error}`));
    page.on("dialog", (dialog) => {
      self.complaints.push(`a dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (!["data:", "blob:"].includes(url.protocol) && url.origin !== brig.url) self.complaints.push(`left the server: ${request.url()}`);
      if (request.url().includes(self.key ?? "\0")) self.complaints.push(`the key is in an address: ${request.url()}`);
    });
    return self;
  }

  async logIn(key) {
    this.key = key;
    await this.page.goto(`${this.brig.url}/`);
    await this.page.getByLabel("API key").fill(key);
    await this.page.getByRole("button", { name: "Log in" }).click();
    await this.page.getByRole("navigation", { name: "Views" }).waitFor();
  }

  async go(hash) {
    await this.page.evaluate((to) => { location.hash = to; }, hash);
  }

  async view(name) {
    await this.page.getByRole("link", { name, exact: true }).first().click();
    await this.page.getByRole("heading", { level: 1, name }).waitFor();
  }

  async shot(name, options = {}) {
    await this.page.screenshot({ path: path.join(SHOTS, `${name}.png`), animations: "disabled", caret: "hide", ...options });
  }

  async clean() {
    const violations = await this.page.evaluate(() => window.violations);
    assert.deepEqual([...this.complaints, ...violations], []);
  }

  async close() {
    await this.context.close();
  }
}
