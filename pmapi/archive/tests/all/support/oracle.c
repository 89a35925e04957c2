/*
 * What libpcp says of an archive, one fact a line.
 *
 *   oracle calls ARCHIVE             label, end, instance domains, names, texts, labels
 *   oracle forw|back STEP PROFILE ARCHIVE
 *                                    every pmFetch of each STEP-th metric; PROFILE is all, even (instances) or none
 *   oracle interp STEP PROFILE ARCHIVE
 *                                    pmFetch with interpolation, for each line "SECONDS MICROSECONDS DELTA COUNT" of
 *                                    standard input: origin, milliseconds between fetches, and how many
 */
/* Functions with microseconds. Since PCP 7 the default is nanoseconds. */
#define PMAPI_VERSION 2
#include <pcp/pmapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pmID *pmids;
static int npmids;
static pmInDom indoms[4096];
static int nindoms;

static void found(const char *name)
{
    pmID pmid;

    /* Derived metrics of the host's configuration are not in the archive. */
    if (pmLookupName(1, &name, &pmid) < 0 || (pmID_domain(pmid) == 511 && pmID_cluster(pmid) < 2048))
	return;
    printf("name %s %u\n", name, pmid);
    for (int i = 0; i < npmids; i++)
	if (pmids[i] == pmid)
	    return;
    pmids = realloc(pmids, (npmids + 1) * sizeof(pmids[0]));
    pmids[npmids++] = pmid;
}

static int by_number(const void *a, const void *b)
{
    unsigned int x = *(const unsigned int *)a, y = *(const unsigned int *)b;
    return x < y ? -1 : x > y;
}

static void metrics(void)
{
    pmTraversePMNS("", found);
    qsort(pmids, npmids, sizeof(pmids[0]), by_number);
    for (int i = 0; i < npmids; i++) {
	pmDesc desc;
	int j;
	if (pmLookupDesc(pmids[i], &desc) < 0 || desc.indom == PM_INDOM_NULL)
	    continue;
	for (j = 0; j < nindoms && indoms[j] != desc.indom; j++)
	    ;
	if (j == nindoms && nindoms < 4096)
	    indoms[nindoms++] = desc.indom;
    }
    qsort(indoms, nindoms, sizeof(indoms[0]), by_number);
}

static int at(struct timeval start, struct timeval end, int quarter)
{
    struct timeval t = start;
    t.tv_sec += (end.tv_sec - start.tv_sec) * quarter / 4;
    printf("at %d\n", quarter);
    return pmSetMode(PM_MODE_FORW, &t, 0);
}

static void labels(const char *what, unsigned int id, int sts, pmLabelSet *sets)
{
    if (sts <= 0)
	return;
    for (int i = 0; i < sts; i++)
	printf("labels %s %u %d %d %.*s\n", what, id, sets[i].inst, sets[i].nlabels, (int)sets[i].jsonlen,
	    sets[i].json ? sets[i].json : "");
    pmFreeLabelSets(sets, sts);
}

static void instances(const char *what, pmInDom indom, int n, int *insts, char **names)
{
    int *order;

    printf("%s %u %d\n", what, indom, n);
    if (n <= 0)
	return;
    order = malloc(n * sizeof(int));
    memcpy(order, insts, n * sizeof(int));
    qsort(order, n, sizeof(int), by_number);
    for (int i = 0; i < n; i++)
	for (int j = 0; j < n; j++)
	    if (insts[j] == order[i] && (i == 0 || order[i] != order[i - 1]))
		printf("  %d %s\n", insts[j], names[j]);
    free(order);
    free(insts);
    free(names);
}

static void text(const char *what, unsigned int id, int sts, char *text)
{
    if (sts < 0) {
	printf("%s %u error %d\n", what, id, sts);
	return;
    }
    printf("%s %u %s\n", what, id, text);
    free(text);
}

static void calls(struct timeval start, struct timeval end)
{
    pmLabelSet *sets;
    int *insts, n;
    char **names, *buffer;

    for (int i = 0; i < npmids; i++) {
	n = pmLookupText(pmids[i], PM_TEXT_ONELINE, &buffer);
	text("oneline", pmids[i], n, buffer);
	n = pmLookupText(pmids[i], PM_TEXT_HELP, &buffer);
	text("help", pmids[i], n, buffer);
    }
    for (int i = 0; i < nindoms; i++) {
	n = pmGetInDomArchive(indoms[i], &insts, &names);
	for (int j = 0; j < n; j++) {
	    if (pmNameInDomArchive(indoms[i], insts[j], &buffer) >= 0) {
		printf("named %d %d\n", strcmp(buffer, names[j]), pmLookupInDomArchive(indoms[i], names[j]));
		free(buffer);
	    }
	}
	instances("ever", indoms[i], n, insts, names);
    }
    for (int quarter = 0; quarter <= 4; quarter++) {
	at(start, end, quarter);
	for (int i = 0; i < nindoms; i++) {
	    n = pmGetInDom(indoms[i], &insts, &names);
	    instances("now", indoms[i], n, insts, names);
	    n = pmGetInDomLabels(indoms[i], &sets);
	    labels("indom", indoms[i], n, sets);
	}
	for (int i = 0; i < npmids; i++) {
	    n = pmGetItemLabels(pmids[i], &sets);
	    labels("item", pmids[i], n, sets);
	}
    }
}

static void value(const pmValueSet *set, const pmValue *v)
{
    printf("  %d ", v->inst);
    if (set->valfmt == PM_VAL_INSITU)
	printf("%08x\n", v->value.lval);
    else {
	const unsigned char *b = (const unsigned char *)v->value.pval->vbuf;
	int n = v->value.pval->vlen - PM_VAL_HDR_SIZE;
	unsigned int sum = 0;
	/* Numbers are in the order of the host, all else as it is. */
	for (int i = 0; i < n; i++)
	    sum += b[i];
	printf("%d:%d:%u\n", v->value.pval->vtype, n, sum);
    }
}

/* Sets the profile, and returns the number of wanted metrics. */
static int chosen(pmID *wanted, int step, const char *profile)
{
    int n = 0;

    for (int i = 0; i < npmids; i += step)
	wanted[n++] = pmids[i];
    if (strcmp(profile, "all") != 0) {
	pmDelProfile(PM_INDOM_NULL, 0, NULL);
	if (strcmp(profile, "even") == 0)
	    for (int i = 0; i < nindoms; i++) {
		int *insts, even = 0, m;
		char **names;
		if ((m = pmGetInDomArchive(indoms[i], &insts, &names)) <= 0)
		    continue;
		for (int j = 0; j < m; j++)
		    if (insts[j] % 2 == 0)
			insts[even++] = insts[j];
		if (even > 0)
		    pmAddProfile(indoms[i], even, insts);
		free(insts);
		free(names);
	    }
    }
    return n;
}

static int by_instance(const void *a, const void *b)
{
    unsigned int x = ((const pmValue *)a)->inst, y = ((const pmValue *)b)->inst;
    return x < y ? -1 : x > y;
}

static void exact(const pmValueSet *set, const pmValue *v)
{
    if (set->valfmt == PM_VAL_INSITU) {
	printf("  %d %08x\n", v->inst, v->value.lval);
	return;
    }
    const unsigned char *b = (const unsigned char *)v->value.pval->vbuf;
    int n = v->value.pval->vlen - PM_VAL_HDR_SIZE, type = v->value.pval->vtype;
    unsigned int sum = 0;
    unsigned long long number;
    if (type == PM_TYPE_64 || type == PM_TYPE_U64 || type == PM_TYPE_DOUBLE) {
	memcpy(&number, b, 8);
	printf("  %d %016llx\n", v->inst, number);
    }
    else if (type == PM_TYPE_FLOAT) {
	unsigned int word;
	memcpy(&word, b, 4);
	printf("  %d %08x\n", v->inst, word);
    }
    else {
	for (int i = 0; i < n; i++)
	    sum += b[i];
	printf("  %d %d:%d:%u\n", v->inst, type, n, sum);
    }
}

static void grid(int step, const char *profile, struct timeval origin, int delta, int count)
{
    pmID *wanted = malloc(npmids * sizeof(pmID));
    int n = chosen(wanted, step, profile), sts;
    pmResult *result;

    pmSetMode(PM_MODE_INTERP, &origin, delta);
    for (int k = 0; k < count; k++) {
	fflush(stdout);
	if ((sts = pmFetch(n, wanted, &result)) < 0) {
	    printf("error %d\n", sts);
	    continue;
	}
	/* libpcp 6.0 carries only beyond a second. */
	if (result->timestamp.tv_usec == 1000000) {
	    result->timestamp.tv_sec++;
	    result->timestamp.tv_usec = 0;
	}
	printf("fetch %ld.%06ld\n", (long)result->timestamp.tv_sec, (long)result->timestamp.tv_usec);
	for (int i = 0; i < result->numpmid; i++) {
	    pmValueSet *set = result->vset[i];
	    if (set->numval == 0)
		continue;
	    printf(" %u %d\n", set->pmid, set->numval);
	    if (set->numval > 1)
		qsort(set->vlist, set->numval, sizeof(pmValue), by_instance);
	    for (int j = 0; j < set->numval; j++)
		exact(set, &set->vlist[j]);
	}
	pmFreeResult(result);
    }
}

/*
 * Each grid has a process: libpcp crashes in some, and after several calls of pmSetMode in one context it uses values
 * that it has freed.
 */
static void interp(int step, const char *profile)
{
    int delta, count, status;
    long seconds, micro;

    while (scanf("%ld %ld %d %d", &seconds, &micro, &delta, &count) == 4) {
	struct timeval origin = { seconds, micro };
	printf("origin %ld.%06ld %d\n", seconds, micro, delta);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
	    grid(step, profile, origin, delta, count);
	    fflush(stdout);
	    _exit(0);
	}
	if (waitpid(child, &status, 0) < 0 || status != 0)
	    printf("crash\n");
    }
}

static void fetch(int mode, int step, const char *profile, struct timeval start, struct timeval end)
{
    pmID *wanted = malloc(npmids * sizeof(pmID));
    int n = chosen(wanted, step, profile), sts;
    pmResult *result;

    pmSetMode(mode, mode == PM_MODE_FORW ? &start : &end, 0);
    while ((sts = pmFetch(n, wanted, &result)) >= 0) {
	printf("fetch %ld.%06ld %d\n", (long)result->timestamp.tv_sec, (long)result->timestamp.tv_usec, result->numpmid);
	for (int i = 0; i < result->numpmid; i++) {
	    const pmValueSet *set = result->vset[i];
	    printf(" %u %d\n", set->pmid, set->numval);
	    for (int j = 0; j < set->numval; j++)
		value(set, &set->vlist[j]);
	}
	pmFreeResult(result);
    }
    printf("end %d\n", sts);
}

int main(int argc, char **argv)
{
    pmLogLabel label;
    struct timeval end;
    int sts;

    if ((sts = pmNewContext(PM_CONTEXT_ARCHIVE, argv[argc - 1])) < 0) {
	printf("open %d\n", sts);
	return 0;
    }
    pmGetArchiveLabel(&label);
    sts = pmGetArchiveEnd(&end);
    printf("label %d %ld.%06ld %s %s\n", label.ll_pid, (long)label.ll_start.tv_sec, (long)label.ll_start.tv_usec,
	label.ll_hostname, label.ll_tz);
    if (sts < 0) {
	printf("end %d\n", sts);
	return 0;
    }
    printf("end %ld.%06ld\n", (long)end.tv_sec, (long)end.tv_usec);
    metrics();
    if (strcmp(argv[1], "calls") == 0)
	calls(label.ll_start, end);
    else if (strcmp(argv[1], "interp") == 0)
	interp(atoi(argv[2]), argv[3]);
    else {
	/* The time of the end in microseconds may be before the last record. */
	end.tv_usec++;
	fetch(strcmp(argv[1], "forw") == 0 ? PM_MODE_FORW : PM_MODE_BACK, atoi(argv[2]), argv[3], label.ll_start, end);
    }
    return 0;
}
