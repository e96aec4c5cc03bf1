"""Works while a timer interrupts it."""
import signal

ticks = 0


def on_tick(*_):
    global ticks
    ticks += 1


signal.signal(signal.SIGALRM, on_tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
total = 0
for i in range(2000000):
    total += i * i
signal.setitimer(signal.ITIMER_REAL, 0)
print(total, ticks > 0)
