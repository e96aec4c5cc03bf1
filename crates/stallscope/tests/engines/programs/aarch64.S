// AArch64: every form of access, with what it touches beside it.
    .text
    .globl main
    .type main, %function
main:
    stp x29, x30, [sp, -16]!
    bl window
    ldp x29, x30, [sp], 16
    mov w0, 0
    ret

    .type window, %function
    .globl window
window:
    adrp x0, table                      // #
    add x0, x0, :lo12:table             // #
    ldr x1, [x0, 8]                     // # L8 table+8
    ldrb w2, [x0, 3]                    // # L1 table+3
    strh w2, [x0, 6]                    // # S2 table+6
    ldrsw x3, [x0, 12]                  // # L4 table+12
    ldr q0, [x0, 16]                    // # L16 table+16
    str q0, [x0, 36]                    // # S16 table+36
    ldp x4, x5, [x0, 64]                // # L8 table+64 L8 table+72
    stp w4, w5, [x0, 4]                 // # S4 table+4 S4 table+8
    ldp q1, q2, [x0, 96]                // # L16 table+96 L16 table+112
    stp q1, q2, [x0, 144]               // # S16 table+144 S16 table+160
    mov x6, x0                          // #
    ldr x7, [x6], 24                    // # L8 table
    str x7, [x6, 8]!                    // # S8 table+32
    mov x8, 5                           // #
    ldr w9, [x0, x8, lsl 2]             // # L4 table+20
    ld1 {v3.16b, v4.16b}, [x0]          // # L32 table
    ld2 {v5.4s, v6.4s}, [x0]            // # L32 table
    st1 {v3.16b, v4.16b, v5.16b}, [x0]  // # S48 table
    ld1 {v7.s}[1], [x0]                 // # L4 table
    ld1r {v7.2d}, [x0]                  // # L8 table
    ldxr x10, [x0]                      // # L8 table
    stxr w11, x10, [x0]                 // # S8 table
    ldar w12, [x0]                      // # L4 table
    stlr w12, [x0]                      // # S4 table
    .arch armv8.1-a
    ldadd w12, w13, [x0]                // # L4 table S4 table
    cas x10, x10, [x0]                  // # L8 table S8 table
    prfm pldl1keep, [x0]                // #
    ret                                 // #
    .bss
    .balign 64
table:
    .zero 256
