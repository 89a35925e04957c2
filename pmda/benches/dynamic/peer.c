/* The operations of benches/dynamic/main.rs on pmdaTree: prints a line of label and nanoseconds for each. */
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double since;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void begin(void)
{
    since = now();
}

static void end(const char *label, long n)
{
    printf("%s\t%.3f\n", label, (now() - since) / n);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    long n = atol(argv[1]), groups = atol(argv[2]), some = 1000, i, at;
    pmdaNameSpace *tree;
    char name[64], **list;
    int *status;
    pmID pmid;

    pmdaTreeCreate(&tree);
    begin();
    for (i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "bench.g%ld.metric%ld", i % groups, i);
        pmdaTreeInsert(tree, pmID_build(400, i / 1024, i % 1024), name);
    }
    pmdaTreeRebuildHash(tree, n);
    end("insert", n);
    begin();
    for (i = 0, at = 0; i < some; i++, at = (at + 61195) % n) {
        snprintf(name, sizeof(name), "bench.g%ld.metric%ld", at % groups, at);
        pmdaTreePMID(tree, name, &pmid);
    }
    end("PMID of a name", some);
    begin();
    for (i = 0, at = 0; i < some; i++, at = (at + 61195) % n) {
        pmdaTreeName(tree, pmID_build(400, at / 1024, at % 1024), &list);
        free(list);
    }
    end("name of a PMID", some);
    begin();
    pmdaTreeChildren(tree, "bench.g0", 0, &list, &status);
    end("children of a group", 1);
    begin();
    pmdaTreeChildren(tree, "bench", 1, &list, &status);
    end("all names", 1);
    return 0;
}
