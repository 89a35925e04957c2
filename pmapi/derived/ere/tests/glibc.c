/*
 * What glibc says about patterns in the locale C.UTF-8. Without arguments, each line of standard input has a pattern and a
 * text between them a tab; the answer is 0 or 1 for a match, or the error of the pattern. With an argument, it is the
 * characters of each class.
 */
#include <locale.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <wctype.h>

static const char *classes[] = {
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"
};

int main(int argc, char **argv)
{
    char line[65536], error[256];
    regex_t regex;

    if (setlocale(LC_ALL, "C.UTF-8") == NULL)
	return 1;
    for (int i = 0; argc > 1 && i < 12; i++) {
	printf("%s", classes[i]);
	for (wint_t c = 1; c < 0x110000; c++)
	    if ((c < 0xd800 || c > 0xdfff) && iswctype(c, wctype(classes[i])))
		printf(" %x", c);
	printf("\n");
    }
    while (argc == 1 && fgets(line, sizeof(line), stdin)) {
	char *text = strchr(line, '\t');
	*text++ = '\0';
	text[strcspn(text, "\n")] = '\0';
	int code = regcomp(&regex, line, REG_EXTENDED | REG_NOSUB);
	if (code != 0) {
	    regerror(code, &regex, error, sizeof(error));
	    printf("%s\n", error);
	    continue;
	}
	printf("%d\n", regexec(&regex, text, 0, NULL, 0) == 0);
	regfree(&regex);
    }
    return 0;
}
