/*
 * Agent with operands of every type and values at the edges of their types, for libpcp's local context:
 *
 *   gcc -shared -fPIC -o agent.so agent.c -lpcp_pmda -lpcp
 *   gcc -o names agent.c -lpcp_pmda -lpcp; names >pmns
 *
 * Cluster 0 has each type in each semantics, singular and with instances; cluster 1 has units; cluster 2 has the rest;
 * cluster 3 has units of libpcp 7.2, which earlier versions ignore. Each fetch moves the values on by one instance.
 * The name space also has a metric that the agent does not know.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pcp/pmapi.h>
#include <pcp/pmda.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof(a[0])))
#define EDGES 8

static const int32_t edges_32[EDGES] = { 0, 1, -1, INT32_MAX, INT32_MIN, 7, -100, 1000000 };
static const uint32_t edges_u32[EDGES] = { 0, 1, UINT32_MAX, 1u << 31, INT32_MAX, 7, 100, 1000000 };
static const int64_t edges_64[EDGES] = { 0, 1, -1, INT64_MAX, INT64_MIN, 7, -(1ll << 40), 1ll << 32 };
static const uint64_t edges_u64[EDGES] = { 0, 1, UINT64_MAX, 1ull << 63, INT64_MAX, 7, 1ull << 53, 1ull << 32 };
static const float edges_float[EDGES] = { 0, 1, -1.5f, FLT_MAX, -FLT_MAX, NAN, INFINITY, FLT_MIN };
static const double edges_double[EDGES] = { 0, 1, -1.5, DBL_MAX, -DBL_MAX, NAN, -INFINITY, DBL_MIN };

static pmdaInstid all[EDGES], some[5];
/* Names with spaces, and with characters that expressions escape. */
static pmdaInstid named[] = {
	{ 3, "red" }, { 20, "green light" }, { 21, "green" }, { 400, "a]b" }, { 401, "c\\d" }, { 5000, "/var/x.y" },
	{ 70000, "10" }, { 70001, "\xc3\xa4" },
};
static pmdaIndom indoms[] = { { 0, EDGES, all }, { 1, 5, some }, { 2, COUNT(named), named } };
static int tick;

/* Later versions call the type of the result differently. */
static int fetch(int n, pmID *pmids, void **result, pmdaExt *pmda)
{
	tick++;
	return pmdaFetch(n, pmids, (void *)result, pmda);
}

static int number(int type, int at, pmAtomValue *atom)
{
	at = (at + tick) % EDGES;
	switch (type) {
	case PM_TYPE_32: atom->l = edges_32[at]; break;
	case PM_TYPE_U32: atom->ul = edges_u32[at]; break;
	case PM_TYPE_64: atom->ll = edges_64[at]; break;
	case PM_TYPE_U64: atom->ull = edges_u64[at]; break;
	case PM_TYPE_FLOAT: atom->f = edges_float[at]; break;
	case PM_TYPE_DOUBLE: atom->d = edges_double[at]; break;
	default: return PM_ERR_TYPE;
	}
	return PMDA_FETCH_STATIC;
}

static int value(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
	static char text[32], record[64];
	int at = inst == PM_IN_NULL ? 2 : (int)inst, item = pmID_item(metric->m_desc.pmid);

	if (pmID_cluster(metric->m_desc.pmid) != 2)
		return number(metric->m_desc.type, at, atom);
	switch (item) {
	case 0:
		snprintf(text, sizeof(text), "text %d %d", at, tick);
		atom->cp = text;
		return PMDA_FETCH_STATIC;
	case 1:
		memset(record, 0, sizeof(record));
		((pmValueBlock *)record)->vtype = PM_TYPE_AGGREGATE;
		((pmValueBlock *)record)->vlen = PM_VAL_HDR_SIZE + 4;
		((pmValueBlock *)record)->vbuf[0] = 'a' + tick % 3;
		atom->vbp = (pmValueBlock *)record;
		return PMDA_FETCH_STATIC;
	case 2: /* fails now and then */
		if (tick % 3 == 1)
			return PM_ERR_AGAIN;
		return number(PM_TYPE_U32, at, atom);
	case 3: /* no values now and then */
		return tick % 3 == 1 ? PMDA_FETCH_NOVALUES : number(PM_TYPE_U32, at, atom);
	case 4: /* never a value */
		return PMDA_FETCH_NOVALUES;
	case 5: /* instances come and go */
		return (at + tick) % 3 == 0 ? PMDA_FETCH_NOVALUES : number(PM_TYPE_64, at, atom);
	case 6: /* small numbers that fall and rise */
	case 7:
		atom->ul = 1000 + (at * 37 + tick * 91) % 200;
		return PMDA_FETCH_STATIC;
	case 8: /* a guard */
		atom->ul = (at + tick) % 2;
		return PMDA_FETCH_STATIC;
	case 9: /* instances with names */
	case 10:
		atom->ul = inst + tick * inst % 7;
		return PMDA_FETCH_STATIC;
	case 11:
		snprintf(text, sizeof(text), "text of %u", inst);
		atom->cp = text;
		return PMDA_FETCH_STATIC;
	case 12: /* event arrays without events */
	case 13:
		memset(record, 0, sizeof(record));
		((pmValueBlock *)record)->vtype = item == 12 ? PM_TYPE_EVENT : PM_TYPE_HIGHRES_EVENT;
		((pmValueBlock *)record)->vlen = PM_VAL_HDR_SIZE + 4;
		atom->vbp = (pmValueBlock *)record;
		return PMDA_FETCH_STATIC;
	case 14:
		return PM_ERR_PERMISSION;
	default:
		return PM_ERR_PMID;
	}
}

static const char *types[] = { "i32", "u32", "i64", "u64", "float", "double" };
static const char *sems[] = { NULL, "counter", NULL, "instant", "discrete" };

static struct {
	const char *name;
	pmUnits units;
} units[] = {
	{ "byte", PMDA_PMUNITS(1, 0, 0, PM_SPACE_BYTE, 0, 0) },
	{ "mbyte", PMDA_PMUNITS(1, 0, 0, PM_SPACE_MBYTE, 0, 0) },
	{ "msec", PMDA_PMUNITS(0, 1, 0, 0, PM_TIME_MSEC, 0) },
	{ "hour", PMDA_PMUNITS(0, 1, 0, 0, PM_TIME_HOUR, 0) },
	{ "count", PMDA_PMUNITS(0, 0, 1, 0, 0, PM_COUNT_ONE) },
	{ "kcount", PMDA_PMUNITS(0, 0, 1, 0, 0, 3) },
	{ "byte_sec", PMDA_PMUNITS(1, -1, 0, PM_SPACE_BYTE, PM_TIME_SEC, 0) },
	{ "kbyte_hour", PMDA_PMUNITS(1, -1, 0, PM_SPACE_KBYTE, PM_TIME_HOUR, 0) },
	{ "per_msec", PMDA_PMUNITS(0, -1, 0, 0, PM_TIME_MSEC, 0) },
	{ "sec2", PMDA_PMUNITS(0, 2, 0, 0, PM_TIME_SEC, 0) },
};
static const int unit_types[] = { PM_TYPE_U32, PM_TYPE_64, PM_TYPE_DOUBLE };

static struct {
	const char *name;
	int type, indom, sem;
} rest[] = {
	{ "text", PM_TYPE_STRING, 0, PM_SEM_INSTANT },
	{ "aggregate", PM_TYPE_AGGREGATE, 0, PM_SEM_INSTANT },
	{ "fails", PM_TYPE_U32, 0, PM_SEM_INSTANT },
	{ "sometimes", PM_TYPE_U32, 0, PM_SEM_INSTANT },
	{ "never", PM_TYPE_U32, 0, PM_SEM_INSTANT },
	{ "moving", PM_TYPE_64, 0, PM_SEM_INSTANT },
	{ "small_counter", PM_TYPE_U32, 0, PM_SEM_COUNTER },
	{ "other", PM_TYPE_U32, 1, PM_SEM_INSTANT },
	{ "guard", PM_TYPE_U32, 0, PM_SEM_INSTANT },
	{ "named", PM_TYPE_U32, 2, PM_SEM_INSTANT },
	{ "named_counter", PM_TYPE_U32, 2, PM_SEM_COUNTER },
	{ "named_text", PM_TYPE_STRING, 2, PM_SEM_DISCRETE },
	{ "event", PM_TYPE_EVENT, -1, PM_SEM_INSTANT },
	{ "high_event", PM_TYPE_HIGHRES_EVENT, -1, PM_SEM_INSTANT },
	{ "forbidden", PM_TYPE_U64, -1, PM_SEM_INSTANT },
};

/* The last eight bits of units: the unit and its scale. */
static struct {
	const char *name;
	uint32_t word;
} extras[] = {
	{ "celsius", 1 << 3 | 1 }, { "fahrenheit", 1 << 3 | 2 }, { "volt", 2 << 3 | 1 }, { "millivolt", 2 << 3 | 2 },
	{ "watt", 4 << 3 | 2 },
};

static pmdaMetric metrics[200];
static char names[200][40];
static int count;

static void add(int cluster, int item, int type, int indom, int sem, pmUnits unit, const char *name)
{
	pmDesc desc = { PMDA_PMID(cluster, item), type, indom < 0 ? PM_INDOM_NULL : (unsigned)indom, sem, unit };

	metrics[count].m_desc = desc;
	snprintf(names[count], sizeof(names[0]), "%s", name);
	count++;
}

static void make(void)
{
	static const pmUnits none;
	char name[40];
	int i, j, sem, type, item = 0;

	for (type = 0; type < 6; type++)
		for (sem = PM_SEM_COUNTER; sem <= PM_SEM_DISCRETE; sem++)
			for (i = 0; sems[sem] != NULL && i < 2; i++) {
				snprintf(name, sizeof(name), "%s_%s_%s", types[type], sems[sem], i ? "many" : "one");
				add(0, item++, type, i - 1, sem, none, name);
			}
	for (i = item = 0; i < COUNT(units); i++)
		for (j = 0; j < COUNT(unit_types); j++)
			for (sem = PM_SEM_COUNTER; sem <= PM_SEM_INSTANT; sem += PM_SEM_INSTANT - PM_SEM_COUNTER) {
				snprintf(name, sizeof(name), "%s_%s_%s", units[i].name, types[unit_types[j]], sems[sem]);
				add(1, item++, unit_types[j], 0, sem, units[i].units, name);
			}
	for (i = 0; i < COUNT(rest); i++)
		add(2, i, rest[i].type, rest[i].indom, rest[i].sem, none, rest[i].name);
	for (i = item = 0; i < COUNT(extras); i++)
		for (sem = PM_SEM_COUNTER; sem <= PM_SEM_INSTANT; sem += PM_SEM_INSTANT - PM_SEM_COUNTER) {
			pmUnits unit;

			memcpy(&unit, &extras[i].word, sizeof(unit));
			snprintf(name, sizeof(name), "%s_%s", extras[i].name, sems[sem]);
			add(3, item++, PM_TYPE_DOUBLE, 0, sem, unit, name);
		}
}

void edges_init(pmdaInterface *interface)
{
	int i;
	char name[32];

	for (i = 0; i < EDGES; i++) {
		snprintf(name, sizeof(name), "i%d", i);
		all[i].i_inst = i;
		all[i].i_name = strdup(name);
		if (i < 5)
			some[i] = all[i];
	}
	make();
	pmdaDSO(interface, PMDA_INTERFACE_7, "edges", NULL);
	interface->version.any.fetch = (void *)fetch;
	pmdaSetFetchCallBack(interface, value);
	pmdaInit(interface, indoms, COUNT(indoms), metrics, count);
}

/* Prints the name space. */
int main(void)
{
	int i;

	make();
	printf("root {\n    e\n}\ne {\n");
	for (i = 0; i < count; i++)
		printf("    %s 250:%d:%d\n", names[i], pmID_cluster(metrics[i].m_desc.pmid), pmID_item(metrics[i].m_desc.pmid));
	printf("    unknown 250:2:1000\n}\n");
	return 0;
}
