/*
 * What libpcp computes for derived metrics over an archive, record by record: derived ARCHIVE. Each line of standard input
 * has a name and an expression between them a tab. The environment has an empty PCP_DERIVED_CONFIG.
 */
/* Functions with microseconds. Since PCP 7 the default is nanoseconds. */
#define PMAPI_VERSION 2
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 20000

static pmID pmids[MOST];
static pmDesc descs[MOST];
static int numbers[MOST];
static char *names[MOST];

static int by_instance(const void *a, const void *b)
{
    unsigned int x = ((const pmValue *)a)->inst, y = ((const pmValue *)b)->inst;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    char line[8192];
    int count = 0, found = 0;
    pmResult *result;

    while (count < MOST && fgets(line, sizeof(line), stdin)) {
	char *tab = strchr(line, '\t');
	line[strcspn(line, "\n")] = '\0';
	*tab = '\0';
	names[count] = strdup(line);
	if (pmRegisterDerived(line, tab + 1) != NULL)
	    printf("syntax %d\n", count);
	count++;
    }
    if (pmNewContext(PM_CONTEXT_ARCHIVE, argv[1]) < 0)
	return 1;
    for (int i = 0; i < count; i++) {
	const char *name = names[i];
	if (pmLookupName(1, &name, &pmids[found]) < 0 || pmLookupDesc(pmids[found], &descs[found]) < 0) {
	    printf("none %d\n", i);
	    continue;
	}
	numbers[found++] = i;
    }
    while (pmFetch(found, pmids, &result) >= 0) {
	printf("fetch %ld.%06ld\n", (long)result->timestamp.tv_sec, (long)result->timestamp.tv_usec);
	for (int i = 0; i < result->numpmid; i++) {
	    pmValueSet *set = result->vset[i];
	    printf(" %d %d\n", numbers[i], set->numval);
	    if (set->numval > 1)
		qsort(set->vlist, set->numval, sizeof(pmValue), by_instance);
	    for (int j = 0; j < set->numval; j++) {
		pmAtomValue atom;
		if (pmExtractValue(set->valfmt, &set->vlist[j], descs[i].type, &atom, PM_TYPE_DOUBLE) < 0)
		    printf("  %d ?\n", set->vlist[j].inst);
		else
		    printf("  %d %.17g\n", set->vlist[j].inst, atom.d);
	    }
	}
	pmFreeResult(result);
    }
    return 0;
}
