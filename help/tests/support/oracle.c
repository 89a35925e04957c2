/*
 * Looks up compiled help text with libpcp_pmda and prints the result. The tests compile and run it.
 *
 * oracle BASE < IDS    prints a line for each line of IDS, which is "m WORD" or "i WORD": the summary, a tab, the
 *                      text with \n for newlines; each begins with "+", or is "-" if there is none
 */
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>

static void put(const char *text)
{
    if (text == NULL)
	putchar('-');
    else
	for (putchar('+'); *text; text++) {
	    if (*text == '\n')
		printf("\\n");
	    else
		putchar(*text);
	}
}

int main(int argc, char **argv)
{
    int help = argc == 2 ? pmdaOpenHelp(argv[1]) : -1;
    unsigned int word;
    char kind;

    if (help < 0) {
	printf("error %d\n", help);
	return 1;
    }
    while (scanf(" %c %u", &kind, &word) == 2) {
	put(kind == 'm' ? pmdaGetHelp(help, word, PM_TEXT_ONELINE) : pmdaGetInDomHelp(help, word, PM_TEXT_ONELINE));
	putchar('\t');
	put(kind == 'm' ? pmdaGetHelp(help, word, PM_TEXT_HELP) : pmdaGetInDomHelp(help, word, PM_TEXT_HELP));
	putchar('\n');
    }
    return 0;
}
