/*
 * An agent that does harm on request, as a shared object for pmda-host.
 *
 * Metric D.0.0 is 42, D.0.1 is the process. Metric D.1.N stores a number, the amount of harm. A fetch of D.2.N does harm N:
 * see the table at the end. Metrics D.3.N have damaged results.
 */
#define _GNU_SOURCE
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NUMBER PM_TYPE_U32, PM_INDOM_NULL

static unsigned int amount;
static volatile int *nowhere;
static char *volatile kept;
static pmdaMetric metrics[2];

static unsigned int next(void)
{
    static unsigned int state = 1;

    state = state * 1664525 + 1013904223 + amount;
    return state >> 8;
}

/* Ends. */
static void segv(void) { *nowhere = 1; }
static void aborts(void) { abort(); }
static void exits(void) { exit(amount % 3); }
static void kills(void)
{
    int number = 1 + amount % 31;

    raise(number >= SIGSTOP && number <= SIGTTOU ? SIGKILL : number);
}
static int deep(int n) { volatile char room[4096]; room[0] = n; return n < 0 ? 0 : deep(n + 1) + room[0]; }
static void overflows(void) { deep(0); }
static void *exits_later(void *unused) { usleep(amount % 2000); _exit(1); return unused; }
static void thread_ends(void) { pthread_t thread; pthread_create(&thread, NULL, exits_later, NULL); }

/* Hangs. */
static void waits(void) { for (;;) pause(); }
static void loops(void) { for (;;) next(); }
static void stops(void) { raise(SIGSTOP); }
static void is_late(void) { usleep(1000 * (amount % 700)); }
static void blocks(void)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    for (;;) pause();
}

/* Writes. */
static void heap(void)
{
    char *buffer = malloc(64);

    for (unsigned int i = 0; i < amount % 5000; i++)
	buffer[(int)(next() % 4096) - 1024] = next();
    free(buffer);
}
static void stack(void)
{
    volatile char here;

    for (unsigned int i = 0; i < amount % 5000; i++)
	(&here)[next() % 2048] = next();
}
/* Overwrites memory that other processes share, and all other writable memory if the amount is odd. */
static void everywhere(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], rights[8];
    unsigned long from, to;

    while (maps && fgets(line, sizeof line, maps)) {
	if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[1] != 'w')
	    continue;
	if (rights[3] != 's' && amount % 2 == 0)
	    continue;
	for (unsigned int i = 0; i < 64; i++)
	    ((char *)from)[(rights[3] == 's' && i < 48) ? i % 32 : next() % (to - from)] = next();
    }
}
static void closes(void) { for (int fd = amount % 4; fd < 64; fd++) close(fd); }
static void babbles(void)
{
    char noise[100];

    for (unsigned int i = 0; i < sizeof noise; i++)
	noise[i] = next();
    for (int fd = 0; fd < 32; fd++)
	if (fcntl(fd, F_GETFL) >= 0)
	    (void)!write(fd, noise, amount % sizeof noise);
}
static void shortens(void) { for (int fd = 3; fd < 32; fd++) (void)!ftruncate(fd, amount % 3); }

/* Leaks. */
static void descriptors(void) { while (open("/dev/null", O_RDONLY) >= 0) ; }
static void memory(void)
{
    for (int i = 0; i < 64 && (kept = malloc(64 << 20)) != NULL; i++)
	kept[next() % (64 << 20)] = 1;
}
static void *sleeps(void *unused) { pause(); return unused; }
static void threads(void)
{
    pthread_t thread;

    for (unsigned int i = 0; i < amount % 200 && pthread_create(&thread, NULL, sleeps, NULL) == 0; i++)
	;
}

/* Forks. */
static void fork_some(int session)
{
    for (unsigned int i = 0; i <= amount % 8; i++) {
	if (fork() == 0) {
	    if (session) {
		setsid();
		if (fork() != 0)
		    _exit(0);
	    }
	    for (int n = 1; n < 32; n++)
		signal(n, SIG_IGN);
	    for (;;)
		pause();
	}
    }
}
static void children(void) { fork_some(0); }
static void strays(void) { fork_some(1); }
static void strays_and_end(void) { fork_some(1); abort(); }
static void twin(void) { fork(); }
static void executes(void) { (void)!system("sleep 100 & exec true"); }

static void (*const harms[])(void) = {
    segv, aborts, exits, kills, overflows, thread_ends,
    waits, loops, stops, is_late, blocks,
    heap, stack, everywhere, closes, babbles, shortens,
    descriptors, memory, threads,
    children, strays, strays_and_end, twin, executes,
};

static int callback(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
    atom->ul = pmID_item(metric->m_desc.pmid) == 0 ? 42 : getpid();
    return PMDA_FETCH_STATIC;
}

/* Damages a valid result. */
static int damage(unsigned int how, pmResult **result)
{
    pmResult *all = *result;

    switch (how) {
    case 0: *result = NULL; return 0;
    case 1: *result = (pmResult *)(long)next(); return 0;
    case 2: all->numpmid = -1; return 0;
    case 3: all->numpmid = 1 << 30; return 0;
    case 4: all->vset[0] = NULL; return 0;
    case 5: all->vset[0] = (pmValueSet *)(long)next(); return 0;
    case 6: all->vset[0]->numval = 1 << 30; return 0;
    case 7: all->vset[0]->numval = -(int)next(); return 0;
    case 8: all->vset[0]->valfmt = next(); return 0;
    case 9: all->vset[0]->valfmt = PM_VAL_DPTR; all->vset[0]->vlist[0].value.pval = NULL; return 0;
    case 10: all->vset[0]->valfmt = PM_VAL_SPTR; all->vset[0]->vlist[0].value.pval = (void *)(long)next(); return 0;
    case 11: all->vset[0]->pmid = next(); return 0;
    case 12: all->numpmid = 0; return 0;
    case 13: return amount;
    case 14: return -(int)(next() % 20000);
    case 15: {
	static pmValueBlock block;
	block.vlen = next();
	block.vtype = next();
	all->vset[0]->valfmt = PM_VAL_SPTR;
	all->vset[0]->vlist[0].value.pval = &block;
	return 0;
    }
    default: return -(int)amount;
    }
}

static int fetch(int count, pmID *pmids, pmResult **result, pmdaExt *ext)
{
    unsigned int cluster = count > 0 ? pmID_cluster(pmids[0]) : 0, item = count > 0 ? pmID_item(pmids[0]) : 0;
    int status;

    if (cluster == 2 && item < sizeof harms / sizeof harms[0])
	harms[item]();
    if (cluster == 3)
	pmids[0] = metrics[0].m_desc.pmid;
    status = pmdaFetch(count, pmids, result, ext);
    return cluster == 3 && status >= 0 ? damage(item, result) : status;
}

static int store(pmResult *result, pmdaExt *ext)
{
    if (result->numpmid == 1 && result->vset[0]->numval == 1)
	amount = result->vset[0]->vlist[0].value.lval;
    return 0;
}

static int desc(pmID pmid, pmDesc *desc, pmdaExt *ext)
{
    unsigned int *words = (unsigned int *)desc;

    if (pmID_cluster(pmid) == 0)
	return pmdaDesc(pmid, desc, ext);
    for (unsigned int i = 0; i < sizeof *desc / sizeof *words; i++)
	words[i] = next();
    return 0;
}

static int text(int ident, int type, char **buffer, pmdaExt *ext)
{
    static char endless[70000];

    switch (amount % 4) {
    case 0: *buffer = NULL; return 0;
    case 1: *buffer = (char *)(long)next(); return 0;
    case 2: memset(endless, 0xff, sizeof endless - 1); *buffer = endless; return 0;
    default: return -(int)next();
    }
}

static int instance(pmInDom indom, int inst, char *name, pmInResult **result, pmdaExt *ext)
{
    pmInResult *all = calloc(1, sizeof *all);

    all->numinst = amount % 3 == 0 ? 1 << 28 : amount % 3 == 1 ? -5 : 2;
    all->instlist = calloc(2, sizeof(int));
    all->namelist = amount % 2 ? calloc(2, sizeof(char *)) : NULL;
    *result = all;
    return 0;
}

void bad_init(pmdaInterface *agent)
{
    for (int i = 0; i < 2; i++)
	metrics[i] = (pmdaMetric){ NULL, { PMDA_PMID(0, i), NUMBER, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } };
    pmdaDSO(agent, PMDA_INTERFACE_7, "bad", NULL);
    if (agent->status != 0)
	return;
    agent->version.seven.fetch = fetch;
    agent->version.seven.store = store;
    agent->version.seven.desc = desc;
    agent->version.seven.text = text;
    agent->version.seven.instance = instance;
    pmdaSetFetchCallBack(agent, callback);
    pmdaInit(agent, NULL, 0, metrics, 2);
}
