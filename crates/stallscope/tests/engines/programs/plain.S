// Loads, stores, read-modify-write, stack, relative and indexed addresses.
    .intel_syntax noprefix
    .text
    .globl main
main:
    push rbx
    call window
    pop rbx
    xor eax, eax
    ret

    .type window, @function
    .globl window
window:
    push rbp                        # S8 @-8
    mov rbp, rsp                    #
    lea rax, [rip + table]          #
    mov ecx, 3                      #
    mov edx, [rax + rcx*4]          # L4 table+12
    mov [rax + rcx*4 - 4], dl       # S1 table+8
    add qword ptr [rax + 16], 1     # L8 table+16 S8 table+16
    inc word ptr [table]            # L2 table S2 table
    cmp dword ptr [rip + table + 4], 0  # L4 table+4
    push qword ptr [rax]            # L8 table S8 @-16
    pop qword ptr [rax + 8]         # L8 @-16 S8 table+8
    push 5                          # S8 @-16
    pop qword ptr [rsp - 24]        # L8 @-16 S8 @-32
    xchg [rax], rdx                 # L8 table S8 table
    lock cmpxchg [rax + 24], rcx    # L8 table+24 S8 table+24
    lea rax, [rip + table]          #
    cmovz rcx, [rax + 32]           # L8 table+32
    nop dword ptr [rax + 64]        #
    prefetcht0 [rax]                # P1 table
    prefetchnta [rip + table + 128] # P1 table+128
    prefetchw [rax + 8]             # P1 table+8
    mov ebx, 70                     #
    bt [rax], rbx                   # L8 table+8
    mov rbx, -1                     #
    bts dword ptr [rax + 8], ebx    # L4 table+4 S4 table+4
    xor ebx, ebx                    #
    enter 16, 0                     # S8 @-16
    leave                           # L8 @-16
    call 1f                         # S8 @-16
1:  pop rbx                         # L8 @-16
    leave                           # L8 @-8
    ret                             # L8 @0
    .bss
    .align 64
table:
    .zero 256
