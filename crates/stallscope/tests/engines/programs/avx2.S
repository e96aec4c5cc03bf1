// 32-byte vectors, masks and gathers of before AVX-512.
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
    lea rdi, [rip + table]          #
    vmovdqu ymm0, [rdi + 8]         # L32 table+8
    vmovaps [rdi + 64], ymm0        # S32 table+64
    vbroadcastss ymm1, [rdi]        # L4 table
    vmovdqa ymm2, [rip + lanes]     # L32 lanes
    vpmaskmovd ymm3, ymm2, [rdi]    # L12 table+4
    vmaskmovps [rdi + 32], ymm2, ymm3  # S12 table+36
    vpxor ymm4, ymm4, ymm4          #
    vpmaskmovq ymm3, ymm4, [rdi]    #
    vmovdqa ymm5, [rip + indexes]   # L32 indexes
    vpgatherdd ymm6, [rdi + ymm5*4], ymm2  # L4 table+8 L4 table+12
    vpcmpeqd xmm7, xmm7, xmm7       #
    vpgatherdq xmm6, [rdi + xmm5*8], xmm7  # L8 table+8 L8 table+16
    vzeroupper                      #
    ret                             # L8 @0
    .data
    .align 64
lanes:
    .long 0, -1, 0, -1, 0, 0, 0, 0
indexes:
    .long 1, 2, 5, 3, 9, 9, 9, 9
    .bss
    .align 64
table:
    .zero 256
