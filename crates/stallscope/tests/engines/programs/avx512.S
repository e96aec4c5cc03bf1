// 64-byte vectors, mask registers, gathers and scatters, compression.
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
    vmovdqu64 zmm16, [rdi + 8]      # L64 table+8
    vmovaps [rdi + 64], zmm16       # S64 table+64
    mov eax, 0x0f0                  #
    kmovw k1, eax                   #
    vmovdqu32 zmm1{k1}, [rdi]       # L16 table+16
    vmovdqu8 [rdi]{k1}, zmm1        # S4 table+4
    vaddps zmm2{k1}, zmm1, [rdi]    # L16 table+16
    vaddps zmm2{k1}, zmm1, dword ptr [rdi]{1to16}  # L4 table
    vpcompressd [rdi]{k1}, zmm2     # S16 table
    vpexpandd zmm2{k1}, [rdi + 4]   # L16 table+4
    vmovss xmm3{k1}, [rdi]          #
    kxorw k2, k2, k2                #
    vmovdqu32 [rdi]{k2}, zmm1       #
    vbroadcasti32x4 zmm4{k1}, [rdi] # L16 table
    vmovdqa64 zmm17, [rip + indexes]  # L64 indexes
    mov eax, 0x8003                 #
    kmovw k3, eax                   #
    vpgatherdd zmm5{k3}, [rdi + zmm17*4]  # L4 table+4 L4 table+8 L4 table+64
    kmovw k3, eax                   #
    vpscatterdd [rdi + zmm17*4]{k3}, zmm5  # S4 table+4 S4 table+8 S4 table+64
    mov eax, 1                      #
    kmovw k4, eax                   #
    vpxorq zmm18, zmm18, zmm18      #
    vpgatherqq zmm6{k4}, [rdi + zmm18*8]  # L8 table
    vpmovdb [rdi]{k1}, zmm1         # S4 table+4
    vzeroupper                      #
    ret                             # L8 @0
    .data
    .align 64
indexes:
    .long 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 16
    .bss
    .align 64
table:
    .zero 256
