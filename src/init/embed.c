/* Writes a file's bytes as a C array. A tool of the build: embed FILE NAME HEADER > OUTPUT. */
#include <stdio.h>

int main(int argc, char **argv)
{
	FILE *f = argc == 4 ? fopen(argv[1], "rb") : NULL;
	size_t n = 0;
	int c;

	if (!f) {
		fprintf(stderr, "usage: embed FILE NAME HEADER\n");
		return 1;
	}
	printf("#include <stddef.h>\n\n#include \"%s\"\n\n", argv[3]);
	printf("const unsigned char %s[] = {", argv[2]);
	while ((c = getc(f)) != EOF)
		printf("%s%d,", n++ % 24 ? "" : "\n\t", c);
	printf("\n};\nconst size_t %s_len = sizeof %s;\n", argv[2], argv[2]);
	c = ferror(f);
	fclose(f);
	return c || fflush(stdout) || n == 0;
}
