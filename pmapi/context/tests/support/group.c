/*
 * What libpcp's fetch groups say: group host|archive|local SOURCE FETCHES STEP, where the source of a local context is an
 * agent as for pmSpecLocalPMDA(3), with STEP in milliseconds for interpolated
 * values, 0 for records. Each line of standard input is a request, its fields between tabs and empty for none:
 *	item METRIC INSTANCE SCALE TYPE
 *	indom METRIC SCALE TYPE
 *	event METRIC INSTANCE FIELD SCALE TYPE
 * Floating point numbers are written as their bits.
 */
/* From PCP 7 on, the functions of this version. */
#define PMAPI_VERSION 2
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4000
#define VALUES 600

struct request {
    char kind;
    int type;
    int status;
    unsigned int count;
    pmAtomValue one;
    pmAtomValue *values;
    int *insts;
    char **names;
    int *statuses;
    struct timespec *times;
};

static struct request requests[MOST];

static char *field(char **line)
{
    char *found = strsep(line, "\t");
    return found && *found ? found : NULL;
}

static void show(int status, pmAtomValue *value, int type)
{
    unsigned int word;
    unsigned long long words;

    if (status < 0) {
	printf(" error %d\n", status);
	return;
    }
    switch (type) {
    case PM_TYPE_32:
	printf(" %d\n", value->l);
	break;
    case PM_TYPE_U32:
	printf(" %u\n", value->ul);
	break;
    case PM_TYPE_64:
	printf(" %lld\n", (long long)value->ll);
	break;
    case PM_TYPE_U64:
	printf(" %llu\n", (unsigned long long)value->ull);
	break;
    case PM_TYPE_FLOAT:
	memcpy(&word, &value->f, sizeof(word));
	printf(" %08x\n", word);
	break;
    case PM_TYPE_DOUBLE:
	memcpy(&words, &value->d, sizeof(words));
	printf(" %016llx\n", words);
	break;
    case PM_TYPE_STRING:
	printf(" ");
	for (char *c = value->cp; *c; c++)
	    printf("%02x", (unsigned char)*c);
	printf("\n");
	break;
    }
}

static int extend(pmFG group, struct request *r, char *line)
{
    char *kind = field(&line), *metric = field(&line);

    r->status = PM_ERR_VALUE;	/* stays if a discrete metric has had no value yet */
    r->kind = kind[0] == 'i' ? kind[1] : kind[0];	/* t, n or e */
    r->values = calloc(VALUES, sizeof(pmAtomValue));
    r->insts = calloc(VALUES, sizeof(int));
    r->names = calloc(VALUES, sizeof(char *));
    r->statuses = calloc(VALUES, sizeof(int));
    r->times = calloc(VALUES, sizeof(struct timespec));
    if (r->kind == 't') {
	char *instance = field(&line), *scale = field(&line);
	r->type = atoi(field(&line));
	return pmExtendFetchGroup_item(group, metric, instance, scale, &r->one, r->type, &r->status);
    }
    if (r->kind == 'n') {
	char *scale = field(&line);
	r->type = atoi(field(&line));
	return pmExtendFetchGroup_indom(group, metric, scale, r->insts, r->names, r->values, r->type, r->statuses, VALUES,
		&r->count, &r->status);
    }
    char *instance = field(&line), *name = field(&line), *scale = field(&line);
    r->type = atoi(field(&line));
    return pmExtendFetchGroup_event(group, metric, instance, name, scale, r->times, r->values, r->type, r->statuses,
	    VALUES, &r->count, &r->status);
}

int main(int argc, char **argv)
{
    char line[8192];
    int count = 0, sts, added[MOST];
    int step = atoi(argv[4]);
    struct timeval time;
    pmFG group;

    int type = argv[1][0] == 'a' ? PM_CONTEXT_ARCHIVE : argv[1][0] == 'l' ? PM_CONTEXT_LOCAL : PM_CONTEXT_HOST;

    if (type == PM_CONTEXT_LOCAL) {
	pmSpecLocalPMDA("clear");
	pmSpecLocalPMDA(argv[2]);
    }
    if ((sts = pmCreateFetchGroup(&group, type, type == PM_CONTEXT_LOCAL ? NULL : argv[2])) < 0) {
	printf("create %d\n", sts);
	return 0;
    }
    while (count < MOST && fgets(line, sizeof(line), stdin)) {
	line[strcspn(line, "\n")] = '\0';
	added[count] = extend(group, &requests[count], line);
	printf("add %d\n", added[count]);
	count++;
    }
    pmExtendFetchGroup_timestamp(group, &time);
    if (step) {
	pmLogLabel label;
	pmUseContext(pmGetFetchGroupContext(group));
	pmGetArchiveLabel(&label);
	pmSetMode(PM_MODE_INTERP, &label.ll_start, step);
    }
    for (int nth = atoi(argv[3]); nth > 0; nth--) {
	sts = pmFetchGroup(group);
	if (sts < 0)
	    printf("fetch error %d\n", sts);
	else
	    printf("fetch %ld.%06ld\n", (long)time.tv_sec, (long)time.tv_usec);
	for (int i = 0; i < count; i++) {
	    struct request *r = &requests[i];
	    if (added[i] < 0)
		continue;
	    printf("%d", i);
	    if (r->kind == 't') {
		show(r->status, &r->one, r->type);
		continue;
	    }
	    if (r->status < 0) {
		printf(" error %d\n", r->status);
		continue;
	    }
	    printf(" count %u\n", r->count);
	    for (unsigned int j = 0; j < r->count; j++) {
		if (r->kind == 'n')
		    printf(" %d %s", r->insts[j], r->names[j] ? r->names[j] : "-");
		else if (r->statuses[j] >= 0)
		    printf(" %ld.%09ld", (long)r->times[j].tv_sec, r->times[j].tv_nsec);
		show(r->statuses[j], &r->values[j], r->type);
	    }
	}
	if (sts < 0)
	    break;
    }
    return 0;
}
