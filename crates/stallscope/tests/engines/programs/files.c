// Files that the window creates, writes, reads back, renames, locks and deletes: each once, however often
// the window is run in copies. What it prints depends on the disk before and behind it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/stallscope-files-XXXXXX";

static int size_of(const char *name) {
    struct stat found;
    return stat(name, &found) ? -errno : (int)found.st_size;
}

__attribute__((noinline)) int window(void) {
    char text[16] = {0};
    int good = 0;
    int fd = open("new", O_RDWR | O_CREAT | O_EXCL, 0600);
    good += write(fd, "eight of", 8) == 8;
    good += pread(fd, text, 5, 3) == 5 && !strcmp(text, "ht of");
    good += open("new", O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST;
    good += size_of("new") == 8 && !access("new", R_OK);
    struct flock whole = {.l_type = F_WRLCK};
    good += !fcntl(fd, F_SETLK, &whole) && !ftruncate(fd, 4096);
    char *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    mapped[100] = 'x';
    good += pread(fd, text, 1, 100) == 1 && text[0] == 'x' && !munmap(mapped, 4096);
    good += !close(fd) && !rename("new", "renamed") && size_of("new") == -ENOENT;
    good += size_of("renamed") == 4096 && readlink("renamed", text, 16) == -1 && errno == EINVAL;
    for (int other = 100; other < 300; other++) close(other);
    good += size_of("renamed") == 4096;

    int old = open("old", O_WRONLY | O_APPEND);
    good += write(old, "+once", 5) == 5 && size_of("old") == 8;
    int reader = open("old", O_RDONLY);
    good += read(reader, text, 16) == 8 && !memcmp(text, "old+once", 8);
    good += !close(old) && !close(reader);

    int unnamed = open(folder, O_TMPFILE | O_RDWR, 0600);
    good += write(unnamed, "gone", 4) == 4 && !close(unnamed);
    int temporary = open("temporary", O_RDWR | O_CREAT, 0600);
    good += !unlink("temporary") && unlink("temporary") == -1 && size_of("temporary") == -ENOENT;
    good += write(temporary, "still", 5) == 5 && pread(temporary, text, 5, 0) == 5 && !close(temporary);
    good += !unlink("spare") && open("spare", O_RDONLY) == -1 && errno == ENOENT;
    good += open("none/new", O_WRONLY | O_CREAT, 0600) == -1 && errno == ENOENT;
    good += open(".", O_WRONLY) == -1 && errno == EISDIR;
    return good;
}

int main(void) {
    if (!mkdtemp(folder) || chdir(folder)) return 1;
    for (const char *name = "old\0spare\0"; *name; name += strlen(name) + 1) {
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        if (write(fd, "old", 3) != 3 || close(fd)) return 1;
    }
    printf("%d", window());
    printf(" %d %d %d\n", size_of("old"), size_of("renamed"), size_of("spare"));
    unlink("old");
    unlink("renamed");
    return rmdir(folder);
}
