/*
 * Measures the CPU time of libpcp's evaluation of definitions: fetches with a derived metric minus fetches of its
 * operands alone, from an agent in this process.
 *
 *   gcc -O2 -shared -fPIC -DAGENT -o agent.so peer.c -lpcp_pmda -lpcp
 *   gcc -O2 -o peer peer.c -lpcp
 *   BENCH_INSTANCES=n peer agent.so pmns rounds <definitions
 *
 * Definitions are lines "NAME OPERAND,OPERAND EXPRESSION". Prints "NAME nanoseconds-per-fetch" for those that it
 * accepts.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pcp/pmapi.h>

#ifdef AGENT
#include <pcp/pmda.h>

static pmdaIndom indoms[1];
static pmdaMetric metrics[] = {
	{ NULL, { PMDA_PMID(0, 0), PM_TYPE_U32, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
	{ NULL, { PMDA_PMID(0, 1), PM_TYPE_U32, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
	{ NULL, { PMDA_PMID(0, 2), PM_TYPE_DOUBLE, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
	{ NULL, { PMDA_PMID(0, 3), PM_TYPE_U64, 0, PM_SEM_COUNTER, PMDA_PMUNITS(1, 0, 0, PM_SPACE_BYTE, 0, 0) } },
	{ NULL, { PMDA_PMID(0, 4), PM_TYPE_U64, 0, PM_SEM_COUNTER, PMDA_PMUNITS(1, 0, 0, PM_SPACE_KBYTE, 0, 0) } },
	{ NULL, { PMDA_PMID(0, 5), PM_TYPE_U32, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
	{ NULL, { PMDA_PMID(0, 6), PM_TYPE_U32, 0, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } },
};

static int value(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
	switch (pmID_item(metric->m_desc.pmid)) {
	case 0: atom->ul = inst + 1; return PMDA_FETCH_STATIC;
	case 1: atom->ul = inst % 7; return PMDA_FETCH_STATIC;
	case 2: atom->d = inst * 1.5; return PMDA_FETCH_STATIC;
	case 3: atom->ull = inst * 1000ull; return PMDA_FETCH_STATIC;
	case 4: atom->ull = inst; return PMDA_FETCH_STATIC;
	case 5: atom->ul = inst; return inst % 2 ? PMDA_FETCH_NOVALUES : PMDA_FETCH_STATIC;
	default: atom->ul = inst; return inst % 3 ? PMDA_FETCH_NOVALUES : PMDA_FETCH_STATIC;
	}
}

void bench_init(pmdaInterface *interface)
{
	int i, n = atoi(getenv("BENCH_INSTANCES"));
	char name[32];

	pmdaDSO(interface, PMDA_INTERFACE_7, "bench", NULL);
	indoms[0].it_numinst = n;
	indoms[0].it_set = calloc(n, sizeof(pmdaInstid));
	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "i%d", i);
		indoms[0].it_set[i].i_inst = i;
		indoms[0].it_set[i].i_name = strdup(name);
	}
	pmdaSetFetchCallBack(interface, value);
	pmdaInit(interface, indoms, 1, metrics, sizeof(metrics) / sizeof(metrics[0]));
}

#else

static double cpu(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static void check(int sts, const char *what)
{
	if (sts < 0) {
		fprintf(stderr, "%s: %s\n", what, pmErrStr(sts));
		exit(1);
	}
}

static double fetch(int n, pmID *pmids)
{
	pmResult *result;
	double start = cpu(), end;

	check(pmFetch(n, pmids, &result), "pmFetch");
	end = cpu();
	pmFreeResult(result);
	return end - start;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static char lines[100][500], spec[1000];
	char *names[100], *operands[100];
	double with[10000], without[10000];
	int i, j, count = 0, rounds = atoi(argv[3]);

	while (fgets(lines[count], sizeof(lines[0]), stdin) != NULL) {
		char *expr;

		lines[count][strcspn(lines[count], "\n")] = '\0';
		names[count] = lines[count];
		operands[count] = strchr(lines[count], ' ');
		*operands[count]++ = '\0';
		expr = strchr(operands[count], ' ');
		*expr++ = '\0';
		if (pmRegisterDerived(names[count], expr) != NULL) {
			fprintf(stderr, "%s: not known to this libpcp: %s\n", names[count], pmDerivedErrStr());
			continue;
		}
		count++;
	}
	check(pmLoadNameSpace(argv[2]), argv[2]);
	pmSpecLocalPMDA("clear");
	snprintf(spec, sizeof(spec), "add,250,%s,bench_init", argv[1]);
	if (pmSpecLocalPMDA(spec) != NULL)
		return 1;
	check(pmNewContext(PM_CONTEXT_LOCAL, NULL), "pmNewContext");
	for (i = 0; i < count; i++) {
		pmID pmids[10];
		const char *name;
		pmDesc desc;
		int n = 0;

		for (name = strtok(operands[i], ","); name != NULL; name = strtok(NULL, ","))
			check(pmLookupName(1, &name, &pmids[n++]), name);
		name = names[i];
		check(pmLookupName(1, &name, &pmids[n]), name);
		check(pmLookupDesc(pmids[n], &desc), name);
		for (j = -2; j < rounds; j++) {
			double a = fetch(n, pmids), b = fetch(n + 1, pmids);

			if (j >= 0) {
				without[j] = a;
				with[j] = b;
			}
		}
		qsort(without, rounds, sizeof(double), ascending);
		qsort(with, rounds, sizeof(double), ascending);
		printf("%s %.1f\n", names[i], with[rounds / 2] - without[rounds / 2]);
	}
	return 0;
}
#endif
