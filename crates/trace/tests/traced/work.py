import json, re
def work(n):
    out = 0
    for i in range(n):
        d = {"k%d" % j: [j, j * i, str(j)] for j in range(20)}
        s = json.dumps(d, sort_keys=True)
        out += len(re.sub(r"[0-9]+", lambda m: "<" + m.group() + ">", s)) + len(json.loads(s))
    return out
print(work(400))
