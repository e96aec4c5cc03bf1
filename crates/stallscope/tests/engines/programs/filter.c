// Runs under a filter that kills it for any system call but those that it makes itself. With
// INSIDE the filter comes in the window.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(number)                                    \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int restrict_calls(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_newfstatat), ALLOW(SYS_brk),
        ALLOW(SYS_getrandom), ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static volatile unsigned seed = 1;

__attribute__((noinline)) unsigned window(void) {
#ifdef INSIDE
    if (restrict_calls()) return 0;
#endif
    unsigned sum = 0;
    for (int i = 0; i < 500; i++) sum += seed = seed * 1103515245 + 12345;
    return sum;
}

int main(void) {
#ifndef INSIDE
    if (restrict_calls()) return 1;
#endif
    printf("%u\n", window());
    return 0;
}
