// A loop, a call in it, a jump through a table, and flags pushed to the stack.
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
    push rbx                        # S8 @-8
    mov ebx, 5                      #
0:  call helper                     # x5 S8 @-16
    .section .text.far, "ax", @progbits
helper:
    add dword ptr [counter], 1      # x5 L4 counter S4 counter
    ret                             # x5 L8 @-16
    .text
    dec ebx                         # x5
    jnz 0b                          # x5
    jmp [targets + rbx*8 + 8]       # L8 targets+8
    ud2
1:  pushf                           # S8 @-16
    pop rax                         # L8 @-16
    test eax, 0x100                 #
    jnz 3f                          #
    mov eax, 39                     #
    syscall                         #
    test r11d, 0x100                #
    jnz 3f                          #
    pop rbx                         # L8 @-8
    ret                             # L8 @0
3:  ud2
    .data
    .align 8
targets:
    .quad 0, 1b
counter:
    .long 0
