/* What a power cut would leave of the files of one folder: as they were when each was last synced.

   Loaded into a program with LD_PRELOAD. POWER_CUT_FOLDER is the folder, POWER_CUT_LEFT where the synced files go. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void keep(int file) {
    const char *folder = getenv("POWER_CUT_FOLDER"), *left = getenv("POWER_CUT_LEFT");
    char link[64], path[PATH_MAX], partial[PATH_MAX + 16], whole[PATH_MAX], bytes[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!folder || !left || length <= 0) return;
    path[length] = 0;
    char *name = strrchr(path, '/');
    if (!name || strlen(folder) != (size_t)(name - path) || strncmp(path, folder, name - path)) return;
    snprintf(whole, sizeof whole, "%s%s", left, name);
    snprintf(partial, sizeof partial, "%s.partial", whole);
    int from = open(path, O_RDONLY), to = open(partial, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (from < 0 || to < 0) abort();
    ssize_t got;
    while ((got = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, got) != got) abort();
    close(from);
    close(to);
    if (rename(partial, whole)) abort();
}

static int synced(const char *name, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(file);
    if (!result) keep(file);
    return result;
}

int fsync(int file) { return synced("fsync", file); }
int fdatasync(int file) { return synced("fdatasync", file); }
