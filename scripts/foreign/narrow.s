# A 32-bit program without a library: prints a line, exits with 7.
    .globl _start
_start:
    mov $100000000, %ecx
1:  dec %ecx
    jnz 1b
    mov $4, %eax
    mov $1, %ebx
    mov $text, %ecx
    mov $10, %edx
    int $0x80
    mov $1, %eax
    mov $7, %ebx
    int $0x80
    .data
text: .ascii "32 bits..\n"
