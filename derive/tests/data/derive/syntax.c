/*
 * What the installed libpcp says of texts as expressions: for each line of standard input "OK", or the place of the
 * error and the reason with a tab between, or "DIED". Each is read in a process of its own, as the parser remembers
 * some of those before.
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

	/* So that the library has read its configuration before. */
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
