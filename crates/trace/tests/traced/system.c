// System calls: output, a file read from where it was left, memory, ids; cpuid and rdtsc.
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <x86intrin.h>

static int file, pair[2];
static char buffer[64];

__attribute__((noinline)) int window(void) {
    int sum = 0;
    unsigned a, b, c, d;
    for (int i = 0; i < 5; i++) {
        sum += (int)read(file, buffer, 10) + buffer[3];
        dprintf(1, "line %d of %d\n", i, sum);
        __get_cpuid(1, &a, &b, &c, &d);
        sum += (int)(a & 0xff) + (__rdtsc() == 0);
        char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(page, i, 8192);
        sum += page[5000] + (getpid() > 1);
        munmap(page, 8192);
        sum += (int)write(pair[0], "x", 1);
    }
    lseek(file, 3, SEEK_CUR);
    int other = open("/proc/self/exe", O_RDONLY);
    sum += (int)read(other, buffer, 4);
    close(other);
    // A service that is not there, and a lock that nobody else wants.
    struct sockaddr_un service = {AF_UNIX, "/nowhere/stallscope-asks-nobody"};
    int asked = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sum += connect(asked, (struct sockaddr *)&service, sizeof service) == -1 && errno == ENOENT;
    close(asked);
    struct flock lock = {F_RDLCK, SEEK_SET, 0, 1, 0};
    sum += fcntl(file, F_SETLK, &lock) == 0;
    return sum;
}

int main(int count, char **arguments) {
    file = open(arguments[count - 1], O_RDONLY);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    int sum = window();
    // Exactly five bytes have gone through, and the file is 53 bytes further on.
    sum += (int)read(pair[1], buffer, sizeof buffer) * 1000;
    sum += (int)lseek(file, 0, SEEK_CUR) * 100000;
    printf("%d\n", sum);
    return 0;
}
