/*
 * An agent that misbehaves in each way that a number selects, as a shared object.
 *
 * Metric D.0.0: number of the process. 0.1: the way, storable. 0.2: a fetch of it misbehaves. 0.3: strings of three instances.
 * Ways from 100 on concern the results of all functions instead.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define METRIC(item, type, indom) { NULL, { PMDA_PMID(0, item), type, indom, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } }

static pmdaInstid kinds[] = { { 1, "one" }, { 2, "two" }, { 3, "three" } };
static pmdaIndom indoms[] = { { 0, 3, kinds } };
static pmdaMetric metrics[] = {
    METRIC(0, PM_TYPE_U32, PM_INDOM_NULL), METRIC(1, PM_TYPE_U32, PM_INDOM_NULL), METRIC(2, PM_TYPE_U32, PM_INDOM_NULL),
    METRIC(3, PM_TYPE_STRING, 0),
};
static unsigned int way;

static int recurse(int n)
{
    volatile char room[4096];

    room[n % 4096] = n;
    return n < 0 ? 0 : recurse(n + 1) + room[n % 4096];
}

__attribute__((noreturn)) static void *spin(void *unused)
{
    for (;;)
	usleep(1000);
}

static void *stop_later(void *unused)
{
    usleep(200000);
    kill(getpid(), SIGSTOP);
    return NULL;
}

static void in_thread(void *(*work)(void *))
{
    pthread_t thread;

    pthread_create(&thread, NULL, work, NULL);
    pthread_detach(thread);
}

/* Starts a process that leaves the group and the session, and ignores signals. */
static void leave_process(void)
{
    if (fork() == 0) {
	setsid();
	for (int sig = 1; sig < 32; sig++)
	    signal(sig, SIG_IGN);
	if (fork() == 0)
	    spin(NULL);
	_exit(0);
    }
}

static void limit(int what, rlim_t most)
{
    struct rlimit limit = { most, most };

    setrlimit(what, &limit);
}

static void misbehave(void)
{
    static char text[1 << 16];
    sigset_t all;

    sigfillset(&all);
    switch (way) {
    case 1: abort();
    case 2: exit(0);
    case 3: _exit(0);
    case 4: exit(1);
    case 5: recurse(0); break;
    case 6: raise(SIGTERM); break;
    case 7: alarm(1); sleep(3); break;
    case 8: pthread_exit(NULL);
    case 10: sigprocmask(SIG_BLOCK, &all, NULL); spin(NULL);
    case 11: for (;;) ;
    case 12: kill(getpid(), SIGSTOP); break;
    case 13: in_thread(stop_later); break;
    case 15: execl(getenv("ROUGH_ROOT"), "root", NULL); break;
    case 14: setsid(); prctl(PR_SET_PDEATHSIG, 0); spin(NULL);
    case 20:
	memset(text, 'x', sizeof text);
	for (int i = 0; i < 16; i++)
	    if (write(1, text, sizeof text) < 0 || write(2, text, sizeof text) < 0)
		break;
	break;
    case 21: close(0); close(1); close(2); break;
    case 22: if (chdir("/") != 0) abort(); umask(0777); break;
    case 23: sigprocmask(SIG_BLOCK, &all, NULL); break;
    case 24: limit(RLIMIT_NOFILE, 0); break;
    case 25: limit(RLIMIT_FSIZE, 0); break;
    case 26: limit(RLIMIT_AS, 1 << 20); break;
    case 27: for (int i = 0; i < 50; i++) in_thread(spin); break;
    case 28: leave_process(); break;
    case 29: for (int i = 0; i < 200; i++) leave_process(); break;
    case 30: for (int sig = 1; sig < 32; sig++) signal(sig, SIG_IGN); break;
    case 31: setpgid(0, 0); setsid(); break;
    case 32: prctl(PR_SET_PDEATHSIG, 0); prctl(PR_SET_DUMPABLE, 0); prctl(PR_SET_NAME, "x) R 1 1"); break;
    case 33: unsetenv("PATH"); clearenv(); break;
    case 34: limit(RLIMIT_CPU, 1); break;
    case 35: fclose(stdout); fclose(stderr); break;
    case 36: setvbuf(stderr, NULL, _IOFBF, 1 << 16); fprintf(stderr, "\001\033[2J\377\n"); break;
    }
}

static int callback(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
    static char text[1 << 20];

    switch (pmID_item(metric->m_desc.pmid)) {
    case 0: atom->ul = getpid(); break;
    case 1: atom->ul = way; break;
    case 2: misbehave(); atom->ul = getpid(); break;
    case 3:
	memset(text, 0xff, sizeof text - 1);
	atom->cp = text;
	break;
    }
    return PMDA_FETCH_STATIC;
}

static pmValueSet *set_of(pmID pmid, int numval, int format)
{
    pmValueSet *set = calloc(1, sizeof *set + 64 * sizeof(pmValue));

    set->pmid = pmid;
    set->numval = numval;
    set->valfmt = format;
    return set;
}

/* Makes a result that no agent should return. */
static int garbage(int count, pmID *pmids, pmResult **result)
{
    static pmResult *made;
    static pmValueBlock block;

    made = calloc(1, sizeof *made + count * sizeof(pmValueSet *));
    made->numpmid = count;
    *result = made;
    for (int i = 0; i < count; i++)
	made->vset[i] = set_of(pmids[i], 1, PM_VAL_INSITU);
    switch (way) {
    case 100: *result = NULL; break;
    case 101: made->numpmid = 0; break;
    case 102: made->numpmid = INT_MAX; break;
    case 103: made->numpmid = -5; break;
    case 104: made->vset[0] = NULL; break;
    case 105: made->vset[0]->numval = INT_MAX; break;
    case 106: made->vset[0]->numval = INT_MIN; break;
    case 107: made->vset[0]->valfmt = PM_VAL_DPTR; break;
    case 108: made->vset[0]->valfmt = 77; break;
    case 109: made->vset[0]->valfmt = PM_VAL_SPTR; made->vset[0]->vlist[0].value.pval = (pmValueBlock *)8; break;
    case 110:
    case 111:
    case 112:
	made->vset[0]->valfmt = PM_VAL_SPTR;
	made->vset[0]->vlist[0].value.pval = &block;
	block.vtype = way == 110 ? 99 : PM_TYPE_STRING;
	block.vlen = way == 111 ? 0xffffff : way == 112 ? 0 : 3;
	break;
    case 113: made->vset[0]->pmid = 1; break;
    case 114: return INT_MIN;
    case 115: return -1;
    case 116: return 77;
    case 117: return PM_ERR_PMDANOTREADY;
    case 118: return PM_ERR_IPC;
    case 119: return -EPIPE;
    case 120: return PM_ERR_TIMEOUT;
    case 121: return -999999;
    case 122: made->vset[0]->numval = -EINTR; break;
    case 123: made->vset[0]->numval = 60; break;
    }
    return 0;
}

static int fetch(int count, pmID *pmids, pmResult **result, pmdaExt *ext)
{
    if (way >= 100 && pmID_item(pmids[0]) == 2)
	return garbage(count, pmids, result);
    return pmdaFetch(count, pmids, result, ext);
}

static int store(pmResult *result, pmdaExt *ext)
{
    way = result->vset[0]->vlist[0].value.lval;
    return 0;
}

static int instance(pmInDom indom, int inst, char *name, pmInResult **result, pmdaExt *ext)
{
    pmInResult *made = calloc(1, sizeof *made);

    if (way < 200)
	return pmdaInstance(indom, inst, name, result, ext);
    *result = made;
    made->indom = indom;
    made->numinst = way == 200 ? INT_MAX : way == 201 ? -1 : way == 202 ? 3 : 0;
    if (way == 203)
	*result = NULL;
    if (way == 204) {
	made->numinst = 2;
	made->instlist = calloc(2, sizeof(int));
	made->namelist = calloc(2, sizeof(char *));
    }
    return way == 205 ? 12345 : way == 206 ? INT_MIN : 0;
}

static int text(int ident, int type, char **buffer, pmdaExt *ext)
{
    if (way < 200)
	return pmdaText(ident, type, buffer, ext);
    *buffer = way == 200 ? NULL : way == 201 ? (char *)8 : memset(malloc(1 << 20), 0xff, 1 << 20);
    return way == 205 ? 12345 : 0;
}

static int desc(pmID pmid, pmDesc *desc, pmdaExt *ext)
{
    if (way < 200)
	return pmdaDesc(pmid, desc, ext);
    memset(desc, way == 200 ? 0xff : way == 201 ? 0x7f : 0, sizeof *desc);
    return way == 205 ? 12345 : 0;
}

static int label(int ident, int type, pmLabelSet **sets, pmdaExt *ext)
{
    static pmLabelSet bad;

    if (way < 200)
	return pmdaLabel(ident, type, sets, ext);
    *sets = way == 200 ? NULL : way == 201 ? (pmLabelSet *)8 : &bad;
    bad.nlabels = way == 202 ? INT_MAX : 5;
    bad.jsonlen = way == 203 ? INT_MAX : 3;
    bad.json = way == 204 ? NULL : "{{{";
    return way == 205 ? 12345 : 1;
}

void rough_init(pmdaInterface *agent)
{
    pmdaDSO(agent, PMDA_INTERFACE_7, "rough", NULL);
    if (agent->status != 0)
	return;
    agent->version.seven.fetch = fetch;
    agent->version.seven.store = store;
    agent->version.seven.instance = instance;
    agent->version.seven.text = text;
    agent->version.seven.desc = desc;
    agent->version.seven.label = label;
    pmdaSetFetchCallBack(agent, callback);
    pmdaInit(agent, indoms, 1, metrics, sizeof metrics / sizeof metrics[0]);
}

/* A program that becomes root, and that others may not kill then. */
#ifdef ROOT
int main(void)
{
    if (setuid(0) != 0)
	return 1;
    spin(NULL);
}
#endif
