/*
 * Prints the result of parsing each line of standard input as an expression with the installed libpcp: "OK", or the
 * position of the error and the reason separated by a tab, or "DIED". Each expression has a process of its own, since
 * the parser keeps state of those before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pcp/pmapi.h>

static void answer(const char *expr)
{
	const char *error = pmRegisterDerived("x", expr);

	if (error == NULL)
		printf("OK\n");
	else
		printf("%d\t%s\n", (int)(error - expr), pmDerivedErrStr() ? pmDerivedErrStr() : "");
	fflush(stdout);
	_exit(0);
}

int main(void)
{
	static char line[1000000];
	struct rlimit limit = { 2, 2 };

	/* Makes the library read its configuration before the first fork. */
	pmRegisterDerived("first", "1");
	while (fgets(line, sizeof(line), stdin) != NULL) {
		int status;
		pid_t child;

		line[strcspn(line, "\n")] = '\0';
		if ((child = fork()) == 0) {
			setrlimit(RLIMIT_CPU, &limit);
			answer(line);
		}
		waitpid(child, &status, 0);
		if (status != 0) {
			printf("DIED\n");
			fflush(stdout);
		}
	}
	return 0;
}
