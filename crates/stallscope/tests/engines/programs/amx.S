// Tiles: 3 rows of 32 bytes, 48 bytes apart.
    .intel_syntax noprefix
    .text
    .globl main
main:
    push rbx
    mov eax, 158
    mov edi, 0x1023
    mov esi, 18
    syscall
    call window
    pop rbx
    xor eax, eax
    ret

    .type window, @function
    .globl window
window:
    ldtilecfg [rip + shape]         # L64 shape
    lea rdi, [rip + table]          #
    mov ecx, 12                     #
    tileloadd tmm1, [rdi + rcx*4 + 8]   # L32 table+8 L32 table+56 L32 table+104
    tilestored [rdi + rcx*4 + 512], tmm1    # S32 table+512 S32 table+560 S32 table+608
    tilerelease                     #
    ret                             # L8 @0
    .data
    .align 64
shape:
    .byte 1
    .zero 15
    .short 0, 32, 0, 0, 0, 0, 0, 0
    .zero 16
    .byte 0, 3, 0, 0, 0, 0, 0, 0
    .zero 8
    .bss
    .align 64
table:
    .zero 1024
