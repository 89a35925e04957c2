/*
 * Prints what the installed libpcp makes of definitions, with the operands' values of the same samples.
 *
 * oracle HOST SAMPLES BATCH <REQUESTS
 * oracle AGENT.so,INIT,PMNS SAMPLES BATCH <REQUESTS     domain 250, without pmcd, at times that are the same in each run
 *
 * A definition with matchinst() should be alone: the parser remembers one that was never closed, and uses patterns
 * after they are freed.
 *
 * Requests are lines "operand NAME" and "define NAME EXPRESSION", with words separated by tabs. Answers also have words
 * separated by tabs. Identifiers and units are hexadecimal words, floating point numbers are their bits:
 *   D name pmid type indom semantics units   an operand's descriptor
 *   U name   no such metric      N name   no descriptor
 *   I indom instance name
 *   E name offset reason         a syntax error
 *   B name code                  a definition that does not bind; the reason is on standard error
 *   M name type indom semantics units        a definition's descriptor
 * and for each BATCH of definitions SAMPLES times, all values from one fetch:
 *   S seconds nanoseconds
 *   V name number (instance value)...        an operand's values, or a negative error
 *   R name number (instance value)...        a definition's values
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <pcp/pmapi.h>

/* Later versions have one type of results. */
#ifdef PMAPI_VERSION_4
#define pmHighResResult pmResult
#define pmFetchHighRes pmFetch
#define pmFreeHighResResult pmFreeResult
#endif

/* Times of the samples of an agent without pmcd; 0 means the clock's. */
static struct timespec now;

/* libpcp calls this one instead of libc's. */
int clock_gettime(clockid_t id, struct timespec *time)
{
	if (now.tv_sec == 0)
		return syscall(SYS_clock_gettime, id, time);
	*time = now;
	return 0;
}

static void next_time(void)
{
	now.tv_sec += 3;
	now.tv_nsec += 141592653;
	if (now.tv_nsec >= 1000000000) {
		now.tv_sec++;
		now.tv_nsec -= 1000000000;
	}
}

struct metric {
	char name[128];
	pmID pmid;
	pmDesc desc;
};

static struct metric operands[2000], *definitions;
static int noperands, ndefinitions;

static void descriptor(char kind, struct metric *m)
{
	uint32_t units;

	memcpy(&units, &m->desc.units, 4);
	printf("%c\t%s\t", kind, m->name);
	if (kind == 'D')
		printf("%08x\t", m->desc.pmid);
	printf("%d\t%08x\t%d\t%08x\n", m->desc.type, m->desc.indom, m->desc.sem, units);
}

static void values(char kind, struct metric *m, pmValueSet *set)
{
	int i, j;

	printf("%c\t%s\t%d", kind, m->name, set->numval);
	for (i = 0; i < set->numval; i++) {
		pmValue *v = &set->vlist[i];
		pmAtomValue a;

		printf("\t%d\t", v->inst);
		if (m->desc.type > PM_TYPE_DOUBLE) {
			for (j = 0; j < v->value.pval->vlen - PM_VAL_HDR_SIZE; j++)
				printf("%02x", (unsigned char)v->value.pval->vbuf[j]);
			continue;
		}
		memset(&a, 0, sizeof(a));
		pmExtractValue(set->valfmt, v, m->desc.type, &a, m->desc.type);
		switch (m->desc.type) {
		case PM_TYPE_32: printf("%d", a.l); break;
		case PM_TYPE_U32: printf("%u", a.ul); break;
		case PM_TYPE_64: printf("%" PRId64, a.ll); break;
		case PM_TYPE_U64: printf("%" PRIu64, a.ull); break;
		case PM_TYPE_FLOAT: printf("%08x", a.ul); break;
		default: printf("%016" PRIx64, a.ull); break;
		}
	}
	printf("\n");
}

static void instances(pmInDom indom)
{
	static pmInDom seen[100];
	static int nseen;
	int i, n, *ids;
	char **names;

	for (i = 0; i < nseen; i++)
		if (seen[i] == indom)
			return;
	if (indom == PM_INDOM_NULL || nseen == 100)
		return;
	seen[nseen++] = indom;
	if ((n = pmGetInDom(indom, &ids, &names)) <= 0)
		return;
	for (i = 0; i < n; i++)
		printf("I\t%08x\t%d\t%s\n", indom, ids[i], names[i]);
}

static void define(const char *name, const char *expr)
{
	const char *error = pmRegisterDerived(name, expr);

	if (error == NULL) {
		snprintf(definitions[ndefinitions++].name, 128, "%s", name);
		return;
	}
	printf("E\t%s\t%d\t%s\n", name, (int)(error - expr), pmDerivedErrStr() ? pmDerivedErrStr() : "");
	/* The parser keeps the state of an incomplete mkconst(), which this one ends. */
	pmRegisterDerived(name, "mkconst(1, type=u32)");
}

/* Creates a context of pmcd, or of an agent in this process. */
static int new_context(char *where)
{
	char spec[1000], *pmns = strrchr(where, ',');
	int sts;

	if (pmns == NULL)
		return pmNewContext(PM_CONTEXT_HOST, where);
	*pmns++ = '\0';
	snprintf(spec, sizeof(spec), "add,250,%s", where);
	if ((sts = pmLoadNameSpace(pmns)) < 0)
		return sts;
	now.tv_sec = 1000000000;
	pmSpecLocalPMDA("clear");
	pmSpecLocalPMDA(spec);
	return pmNewContext(PM_CONTEXT_LOCAL, NULL);
}

int main(int argc, char **argv)
{
	static char line[100000];
	int i, sts, batch, samples, sample;
	pmHighResResult *result;
	pmID *pmids;

	/* Some expressions make libpcp loop forever. The limit is one of CPU time, because the machine may be busy. */
	struct rlimit limit = { 5, 5 };

	if (argc != 4 || setrlimit(RLIMIT_CPU, &limit) < 0)
		return 2;
	samples = atoi(argv[2]);
	batch = atoi(argv[3]);
	definitions = calloc(100000, sizeof(*definitions));
	pmids = calloc(noperands + batch + 2000, sizeof(*pmids));
	while (fgets(line, sizeof(line), stdin) != NULL) {
		char *name = strchr(line, '\t');

		line[strcspn(line, "\n")] = '\0';
		if (name == NULL)
			continue;
		*name++ = '\0';
		if (strcmp(line, "operand") == 0) {
			snprintf(operands[noperands++].name, 128, "%s", name);
		} else {
			char *expr = strchr(name, '\t');

			*expr++ = '\0';
			define(name, expr);
		}
	}
	if ((sts = new_context(argv[1])) < 0) {
		fprintf(stderr, "%s: %s\n", argv[1], pmErrStr(sts));
		return 1;
	}
	for (i = 0; i < noperands; i++) {
		const char *name = operands[i].name;

		if (pmLookupName(1, &name, &operands[i].pmid) < 0) {
			printf("U\t%s\n", name);
		} else if (pmLookupDesc(operands[i].pmid, &operands[i].desc) < 0) {
			printf("N\t%s\n", name);
			operands[i].pmid = PM_ID_NULL;
		} else {
			descriptor('D', &operands[i]);
			instances(operands[i].desc.indom);
			continue;
		}
		operands[i--] = operands[--noperands];
	}
	for (i = 0; i < ndefinitions; i++) {
		const char *name = definitions[i].name;

		if ((sts = pmLookupName(1, &name, &definitions[i].pmid)) < 0 ||
		    (sts = pmLookupDesc(definitions[i].pmid, &definitions[i].desc)) < 0) {
			printf("B\t%s\t%d\n", name, sts);
			definitions[i--] = definitions[--ndefinitions];
		} else
			descriptor('M', &definitions[i]);
	}
	for (i = 0; i < ndefinitions || (i == 0 && noperands > 0); i += batch) {
		int j, n = ndefinitions - i < batch ? ndefinitions - i : batch;

		for (j = 0; j < noperands; j++)
			pmids[j] = operands[j].pmid;
		for (j = 0; j < n; j++)
			pmids[noperands + j] = definitions[i + j].pmid;
		for (sample = 0; sample < samples; sample++) {
			if ((sts = pmFetchHighRes(noperands + n, pmids, &result)) < 0) {
				fprintf(stderr, "pmFetchHighRes: %s\n", pmErrStr(sts));
				return 1;
			}
			printf("S\t%ld\t%ld\n", (long)result->timestamp.tv_sec, (long)result->timestamp.tv_nsec);
			for (j = 0; j < noperands; j++)
				values('V', &operands[j], result->vset[j]);
			for (j = 0; j < n; j++)
				values('R', &definitions[i + j], result->vset[noperands + j]);
			pmFreeHighResResult(result);
			if (now.tv_sec != 0)
				next_time();
			else if (sample + 1 < samples)
				usleep(10000);
		}
	}
	return 0;
}
