/*
 * CPU time of libpcp, in nanoseconds: peer ARCHIVE all|one|grid [METRIC]
 *
 *   open      opening
 *   all       every record (pmFetchArchive)
 *   one       one metric, forward
 *   grid      one metric every 60 s
 * and after it the number of values.
 */
#include <pcp/pmapi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    long long start = now(), values = 0;
    pmLogLabel label;
    pmResult *result;
    pmID pmid;
    const char *name = argc > 3 ? argv[3] : NULL;

    if (pmNewContext(PM_CONTEXT_ARCHIVE, argv[1]) < 0)
	return 1;
    pmGetArchiveLabel(&label);
    if (strcmp(argv[2], "open") == 0) {
	printf("%lld 0\n", now() - start);
	return 0;
    }
    if (name && pmLookupName(1, &name, &pmid) < 0)
	return 1;
    start = now();
    pmSetMode(strcmp(argv[2], "grid") == 0 ? PM_MODE_INTERP : PM_MODE_FORW, &label.ll_start, 60000);
    while ((name ? pmFetch(1, &pmid, &result) : pmFetchArchive(&result)) >= 0) {
	for (int i = 0; i < result->numpmid; i++)
	    values += result->vset[i]->numval > 0 ? result->vset[i]->numval : 0;
	pmFreeResult(result);
    }
    printf("%lld %lld\n", now() - start, values);
    return 0;
}
