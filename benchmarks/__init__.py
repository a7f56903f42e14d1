"""What Fanout promises of its speed and its memory, measured: `python -m benchmarks`, or `make bench`.

| name | measures | promised |
| --- | --- | --- |
| `noop` | 2,000, 20,000 and 200,000 items that do nothing, against the same statements without Temporal | a quarter |
| `slow` | 500 items of a second, 50 at once, against the ten seconds that they need | 1.5 times |
| `recovery` | 2,000 items of 5 ms, the only worker killed half-way, from the restart to the close | 15 s |
| `million` | a million items that do nothing: memory of worker and submitter, lengths of histories | see there |
| `live` | 20,000 items that do nothing with 50 readers of their progress, against none; delay and memory | a half |
| `pixel` | 1,000 items, from each settle to its change on the dashboard | median 0.3 s, 99 of 100 in 1 s |

All six are in the default set: `million` takes about two minutes on two cores.
"""
