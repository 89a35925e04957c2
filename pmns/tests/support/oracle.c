/*
 * Loads a name space with libpcp and prints the result. The tests and the benchmark compile and run it.
 *
 * oracle dump FILE DUPS   every name with its PMID, every PMID with its names, every node with its children
 * oracle time FILE COUNT  microseconds that pmLoadASCIINameSpace takes, the minimum over COUNT processes
 * oracle plain FILE COUNT microseconds that pmLoadNameSpace takes, which does not start pmcpp
 */
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* from libpcp.h, which is not installed: disables derived metrics, as pmcd and pmnsmerge do */
extern int __pmSetInternalState(int);
#define PM_STATE_PMCS 1

static void name(const char *name)
{
    pmID pmid;
    char **names;
    int i, n = pmLookupName(1, &name, &pmid);

    if (n < 0)
	printf("name\t%s\t%d\n", name, n);
    else
	printf("name\t%s\t%s\n", name, pmIDStr(pmid));
    n = n < 0 ? 0 : pmNameAll(pmid, &names);
    for (i = 0; i < n; i++)
	printf("pmid\t%s\t%s\n", pmIDStr(pmid), names[i]);
    if (n > 0)
	free(names);
}

static void children(const char *path)
{
    char **names, below[4096];
    int i, *status, n = pmGetChildrenStatus(path, &names, &status);

    if (n <= 0)
	return;
    printf("children\t%s", path);
    for (i = 0; i < n; i++)
	printf("\t%s%s", names[i], status[i] == PMNS_NONLEAF_STATUS ? "." : "");
    printf("\n");
    for (i = 0; i < n; i++) {
	if (status[i] != PMNS_NONLEAF_STATUS)
	    continue;
	snprintf(below, sizeof(below), "%s%s%s", path, *path ? "." : "", names[i]);
	children(below);
    }
    free(names);
    free(status);
}

static double load_time(const char *file, int plain)
{
    struct timespec start, end;
    int sts;

    clock_gettime(CLOCK_MONOTONIC, &start);
    sts = plain ? pmLoadNameSpace(file) : pmLoadASCIINameSpace(file, 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (sts < 0)
	exit(1);
    return (end.tv_sec - start.tv_sec) * 1e6 + (end.tv_nsec - start.tv_nsec) / 1e3;
}

int main(int argc, char **argv)
{
    int sts, i;
    double best = 1e12;

    if (argc != 4)
	return 2;
    __pmSetInternalState(PM_STATE_PMCS);
    if (strcmp(argv[1], "dump") != 0) {
	/* one process each, because libpcp loads a name space only once per process */
	for (i = 0; i < atoi(argv[3]); i++) {
	    int fds[2];
	    double took;

	    if (pipe(fds) < 0)
		return 1;
	    if (fork() == 0) {
		took = load_time(argv[2], strcmp(argv[1], "plain") == 0);
		_exit(write(fds[1], &took, sizeof(took)) != sizeof(took));
	    }
	    if (read(fds[0], &took, sizeof(took)) != sizeof(took))
		return 1;
	    if (took < best)
		best = took;
	    close(fds[0]);
	    close(fds[1]);
	    wait(NULL);
	}
	printf("%.1f\n", best);
	return 0;
    }
    if ((sts = pmLoadASCIINameSpace(argv[2], atoi(argv[3]))) < 0) {
	fprintf(stderr, "error: %s\n", pmErrStr(sts));
	return 1;
    }
    if ((sts = pmTraversePMNS("", name)) < 0)
	printf("traverse\t%d\n", sts);
    children("");
    return 0;
}
