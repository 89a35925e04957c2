/*
 * An agent that hangs and crashes on request, as a shared object.
 *
 * Metrics D.0.0: number of fetches. 0.1: milliseconds that a fetch of 0.3 takes, storable. 0.2: a fetch of it crashes.
 * 0.3: see 0.1. 0.4: user of the client, by its attribute. 0.5: number of clients that have ended. 0.6: three instances.
 * 0.7: process of the agent. 0.8: a fetch of it forks; the new process goes on, and the old one does not. 0.9: the
 * variable GLIBC_TUNABLES of a program that the agent starts, with a newline. 0.10: a fetch of it closes all descriptors but
 * the first three. 0.11: a fetch of it opens others in their place. 0.12: a fetch of it makes them non-blocking. 0.13: a text
 * of 3 MB.
 *
 * TROUBLE_PAUSE in the environment is the first value of 0.1. When the process ends by itself, it creates the file
 * TROUBLE_EXIT. While there is a file TROUBLE_STOP, the agent does not return from the function for attributes.
 */
#include <fcntl.h>
#include <pcp/pmapi.h>
#include <pcp/pmda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define METRIC(item, type, indom) { NULL, { PMDA_PMID(0, item), type, indom, PM_SEM_INSTANT, PMDA_PMUNITS(0, 0, 0, 0, 0, 0) } }

static pmdaInstid kinds[] = { { 1, "one" }, { 2, "two" }, { 3, "three" } };
static pmdaIndom indoms[] = { { 0, 3, kinds } };
static pmdaMetric metrics[] = {
    METRIC(0, PM_TYPE_U32, PM_INDOM_NULL), METRIC(1, PM_TYPE_U32, PM_INDOM_NULL), METRIC(2, PM_TYPE_U32, PM_INDOM_NULL),
    METRIC(3, PM_TYPE_U32, PM_INDOM_NULL), METRIC(4, PM_TYPE_STRING, PM_INDOM_NULL), METRIC(5, PM_TYPE_U32, PM_INDOM_NULL),
    METRIC(6, PM_TYPE_U32, 0), METRIC(7, PM_TYPE_U32, PM_INDOM_NULL), METRIC(8, PM_TYPE_U32, PM_INDOM_NULL),
    METRIC(9, PM_TYPE_STRING, PM_INDOM_NULL), METRIC(10, PM_TYPE_U32, PM_INDOM_NULL), METRIC(11, PM_TYPE_U32, PM_INDOM_NULL),
    METRIC(12, PM_TYPE_U32, PM_INDOM_NULL), METRIC(13, PM_TYPE_STRING, PM_INDOM_NULL),
};
static unsigned int fetches, pause_ms, ended;
static char users[64][32];
static volatile int *nowhere;

/* Handles descriptors that are not the agent's. */
static void spoil(int how)
{
    int none = open("/dev/null", O_RDWR);

    for (int fd = 3; fd < 64; fd++) {
	if (how == 10)
	    close(fd);
	else if (how == 11)
	    dup2(none, fd);
	else
	    fcntl(fd, F_SETFL, O_NONBLOCK);
    }
}

static char *tunables(void)
{
    static char text[256];
    FILE *program = popen("echo $GLIBC_TUNABLES", "r");

    if (program == NULL || fgets(text, sizeof text, program) == NULL)
	strcpy(text, "none");
    if (program != NULL)
	pclose(program);
    return text;
}

static int callback(pmdaMetric *metric, unsigned int inst, pmAtomValue *atom)
{
    static char text[3000000];
    int context = pmdaGetContext();

    switch (pmID_item(metric->m_desc.pmid)) {
    case 0: atom->ul = fetches; break;
    case 1: atom->ul = pause_ms; break;
    case 2: *nowhere = 1; break;
    case 3: usleep(1000 * pause_ms); atom->ul = pause_ms; break;
    case 4:
	if (context < 0 || context >= 64 || users[context][0] == '\0')
	    return PM_ERR_VALUE;
	atom->cp = users[context];
	break;
    case 5: atom->ul = ended; break;
    case 6: atom->ul = 10 * inst; break;
    case 7: atom->ul = getpid(); break;
    case 8:
	while (fork() != 0)
	    pause();
	atom->ul = getpid();
	break;
    case 9: atom->cp = tunables(); break;
    case 10:
    case 11:
    case 12:
	spoil(pmID_item(metric->m_desc.pmid));
	atom->ul = getpid();
	break;
    case 13:
	memset(text, 'x', sizeof text - 1);
	atom->cp = text;
	break;
    default: return PM_ERR_PMID;
    }
    return PMDA_FETCH_STATIC;
}

static int fetch(int count, pmID *pmids, pmResult **result, pmdaExt *ext)
{
    fetches++;
    return pmdaFetch(count, pmids, result, ext);
}

static int store(pmResult *result, pmdaExt *ext)
{
    for (int i = 0; i < result->numpmid; i++) {
	pmValueSet *set = result->vset[i];

	if (pmID_item(set->pmid) != 1)
	    return PM_ERR_PERMISSION;
	if (set->numval != 1 || set->valfmt != PM_VAL_INSITU)
	    return PM_ERR_BADSTORE;
	pause_ms = set->vlist[0].value.lval;
    }
    return 0;
}

static int attribute(int context, int key, const char *value, int length, pmdaExt *ext)
{
    const char *stop = getenv("TROUBLE_STOP");

    while (stop != NULL && access(stop, F_OK) == 0)
	usleep(10000);
    if (key == PMDA_ATTR_USERID && context >= 0 && context < 64)
	pmsprintf(users[context], sizeof users[context], "%s", value);
    return 0;
}

static void end(int context)
{
    if (context >= 0 && context < 64)
	users[context][0] = '\0';
    ended++;
}

static void at_exit(void)
{
    close(open(getenv("TROUBLE_EXIT"), O_CREAT | O_WRONLY, 0666));
}

static void init(pmdaInterface *agent, int flags)
{
    if (getenv("TROUBLE_PAUSE") != NULL)
	pause_ms = atoi(getenv("TROUBLE_PAUSE"));
    if (getenv("TROUBLE_EXIT") != NULL)
	atexit(at_exit);
    pmdaDSO(agent, PMDA_INTERFACE_7, "trouble", NULL);
    if (agent->status != 0)
	return;
    agent->version.seven.fetch = fetch;
    agent->version.seven.store = store;
    agent->version.seven.attribute = attribute;
    pmdaSetFetchCallBack(agent, callback);
    pmdaSetEndContextCallBack(agent, end);
    if (flags)
	pmdaSetCommFlags(agent, flags);
    pmdaInit(agent, indoms, 1, metrics, sizeof metrics / sizeof metrics[0]);
}

void trouble_init(pmdaInterface *agent)
{
    init(agent, 0);
}

/* The same agent, which asks for the attributes of clients. */
void clients_init(pmdaInterface *agent)
{
    init(agent, PMDA_FLAG_AUTHORIZE);
}

/* An entry point that crashes. */
void crash_init(pmdaInterface *agent)
{
    *nowhere = 1;
}

/* An entry point that hangs until a file exists. */
void hang_init(pmdaInterface *agent)
{
    while (access(getenv("TROUBLE_GO"), F_OK) != 0)
	usleep(10000);
    init(agent, 0);
}

/* An entry point that fails. */
void fail_init(pmdaInterface *agent)
{
    agent->status = -ENODEV;
}
