/*
 * What libpcp computes for derived metrics over an archive: derived ARCHIVE. Each line of standard input has a key, a name
 * and an expression between tabs. Definitions with the same key, one after the other, are fetched together, and apart from
 * all others: record by record; or, with the name of a metric after `@` as their key, interpolated at the times of its
 * records. The environment has an empty PCP_DERIVED_CONFIG.
 */
/* Functions with microseconds. Since PCP 7 the default is nanoseconds. */
#define PMAPI_VERSION 2
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 20000

struct definition {
    char *key;
    char *name;
    int number;
    pmID pmid;
    pmDesc desc;
};
static struct definition all[MOST];
static pmID pmids[MOST];

static int by_instance(const void *a, const void *b)
{
    unsigned int x = ((const pmValue *)a)->inst, y = ((const pmValue *)b)->inst;
    return x < y ? -1 : x > y;
}

static void print(const struct definition *of, const struct timeval *time, pmValueSet *set)
{
    if (set->numval == 0)
	return;
    printf("%d at %ld.%06ld: %d\n", of->number, (long)time->tv_sec, (long)time->tv_usec, set->numval);
    if (set->numval > 1)
	qsort(set->vlist, set->numval, sizeof(pmValue), by_instance);
    for (int i = 0; i < set->numval; i++) {
	pmAtomValue atom;
	if (pmExtractValue(set->valfmt, &set->vlist[i], of->desc.type, &atom, PM_TYPE_DOUBLE) < 0)
	    printf("  %d ?\n", set->vlist[i].inst);
	else
	    printf("  %d %.17g\n", set->vlist[i].inst, atom.d);
    }
}

/* Fetches definitions; without times, in all records. */
static void fetch(const struct definition *first, int count, struct timeval *times, int most)
{
    pmResult *result;

    for (int i = 0; i < count; i++)
	pmids[i] = first[i].pmid;
    for (int nth = 0; times == NULL || nth < most; nth++) {
	if (times != NULL)
	    pmSetMode(PM_MODE_INTERP, &times[nth], 1000);
	if (pmFetch(count, pmids, &result) < 0)
	    break;
	for (int i = 0; i < count; i++)
	    print(&first[i], &result->timestamp, result->vset[i]);
	pmFreeResult(result);
    }
}

static int times_of(const char *name, struct timeval **times)
{
    pmResult *result;
    pmID pmid;
    int count = 0;

    if (pmLookupName(1, &name, &pmid) < 0)
	return 0;
    while (pmFetch(1, &pmid, &result) >= 0) {
	*times = realloc(*times, (count + 1) * sizeof(struct timeval));
	(*times)[count++] = result->timestamp;
	pmFreeResult(result);
    }
    return count;
}

int main(int argc, char **argv)
{
    char line[8192];
    int count = 0, found = 0;
    pmLogLabel label;

    while (count < MOST && fgets(line, sizeof(line), stdin)) {
	char *key = strtok(line, "\t"), *name = strtok(NULL, "\t"), *expr = strtok(NULL, "\n");
	all[count].key = strdup(key);
	all[count].name = strdup(name);
	if (pmRegisterDerived(name, expr) != NULL)
	    printf("syntax %d\n", count);
	count++;
    }
    if (pmNewContext(PM_CONTEXT_ARCHIVE, argv[1]) < 0 || pmGetArchiveLabel(&label) < 0)
	return 1;
    for (int i = 0; i < count; i++) {
	struct definition *of = &all[i];
	const char *name = of->name;
	if (pmLookupName(1, &name, &of->pmid) < 0 || pmLookupDesc(of->pmid, &of->desc) < 0) {
	    printf("none %d\n", i);
	    continue;
	}
	of->number = i;
	all[found++] = *of;
    }
    for (int first = 0, next; first < found; first = next) {
	struct timeval *times = NULL;
	const char *key = all[first].key;
	int most;
	for (next = first; next < found && strcmp(all[next].key, key) == 0; next++)
	    ;
	pmSetMode(PM_MODE_FORW, &label.ll_start, 0);
	if (key[0] == '@')
	    most = times_of(key + 1, &times);
	if (key[0] != '@' || times != NULL)
	    fetch(&all[first], next - first, times, most);
	free(times);
    }
    return 0;
}
