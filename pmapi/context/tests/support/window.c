/*
 * What libpcp makes of time windows: window START END ZONE NOW, in seconds and nanoseconds as one word; END 0 for none.
 * Each line of standard input has the arguments of -S, -T, -A and -O between tabs, empty for none. Each line of standard
 * output has the result of the call and the three times.
 */
#define PCP_DERIVED_CONFIG ""
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct timespec now;

/* In place of the one that libpcp calls. */
int clock_gettime(clockid_t id, struct timespec *result)
{
    *result = now;
    return 0;
}

static struct timespec at(const char *text)
{
    long long nano = atoll(text);
    struct timespec t = { nano / 1000000000, nano % 1000000000 };
    return t;
}

int main(int argc, char **argv)
{
    char line[4096], buffer[32];
    struct timespec start = at(argv[1]), end = at(argv[2]);

    if (atoll(argv[2]) == 0)
	end.tv_sec = PM_MAX_TIME_T;
    pmNewZone(argv[3]);
    now = at(argv[4]);
    while (fgets(line, sizeof(line), stdin)) {
	char *field = line, *args[4], *message = NULL;
	struct timespec s = { 0, 0 }, t = { 0, 0 }, o = { 0, 0 };
	time_t clock;
	line[strcspn(line, "\n")] = '\0';
	for (int i = 0; i < 4; i++) {
	    args[i] = field ? strsep(&field, "\t") : NULL;
	    if (args[i] && args[i][0] == '\0')
		args[i] = NULL;
	}
	int sts = pmParseHighResTimeWindow(args[0], args[1], args[2], args[3], &start, &end, &s, &t, &o, &message);
	if (sts < 0) {
	    printf("error\n");
	    continue;
	}
	clock = s.tv_sec;
	printf("%d %ld.%09ld %ld.%09ld %ld.%09ld %s", sts, s.tv_sec, s.tv_nsec, t.tv_sec, t.tv_nsec, o.tv_sec, o.tv_nsec,
	    pmCtime(&clock, buffer));
    }
    return 0;
}
