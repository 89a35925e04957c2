/* Writes each fsync(2) and rename(2) of a program to the file $CALLS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put(const char *call, const char *name)
{
    char	line[5000];
    int		fd = open(getenv("CALLS"), O_WRONLY | O_APPEND | O_CREAT, 0666);

    snprintf(line, sizeof(line), "%s %s\n", call, name);
    if (write(fd, line, strlen(line)) < 0)
	abort();
    close(fd);
}

static int synced(const char *call, int fd)
{
    int		(*next)(int) = dlsym(RTLD_NEXT, call);
    char	link[64], path[4096] = "";

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0)
	abort();
    put("sync", path);
    return next(fd);
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }

int rename(const char *from, const char *to)
{
    int		(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");

    put("rename", to);
    return next(from, to);
}

int renameat(int at, const char *from, int in, const char *to)
{
    int		(*next)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");

    put("rename", to);
    return next(at, from, in, to);
}

int renameat2(int at, const char *from, int in, const char *to, unsigned int flags)
{
    int		(*next)(int, const char *, int, const char *, unsigned int) = dlsym(RTLD_NEXT, "renameat2");

    put("rename", to);
    return next(at, from, in, to, flags);
}
