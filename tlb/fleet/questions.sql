-- The questions to an atlas that have a name: each begins with its name and what it asks.
--
-- The unit of a median is the machine: its own median over processes, or its profile's value, counts once, and n is how many machines
-- there are; low and high hold the median of all such machines as often as coverage says. One machine has no interval: its coverage is 0.
-- Rows that something disturbed (noisy) count, as on every page, and questions about rows say how many. Times of two versions of a kernel
-- (measures) are in no number together.

-- views: What several questions share: machines by kind, and the chase over one line a base page of 2 GiB.
CREATE VIEW kinds AS SELECT machine, any_value(microarchitecture) AS microarchitecture,
    arg_max(cpu_model, is_latest::INT) AS cpu_model, arg_max(hypervisor, is_latest::INT) AS hypervisor FROM machines GROUP BY machine;
CREATE VIEW far AS SELECT machine, state, measures, engine, pages, median(ns_per_access) AS ns, count(*) AS processes,
    count(*) FILTER (noisy <> '') AS noisy, max(started_at) AS until
    FROM rows WHERE kernel = 'page_chase' AND mode = '' AND layout = 'spread' AND "order" = 'cycle' AND stride_pages = 1
    AND working_set_bytes = 2147483648 AND pages IN ('4k', '2m', 'thp') GROUP BY ALL;

-- reach: How far the TLB reaches, in bytes of base pages, by microarchitecture and level: entries that surveys found.
WITH base AS (SELECT machine, any_value(base_page_bytes) AS base_page_bytes FROM machines WHERE base_page_bytes IS NOT NULL GROUP BY machine)
SELECT microarchitecture, name AS entries_of, i.n AS n, i.median AS median_bytes, i.low AS low_bytes, i.high AS high_bytes,
    i.coverage AS coverage
FROM (SELECT microarchitecture, name, median_interval(list(value * base_page_bytes)) AS i FROM profile JOIN base USING (machine)
    WHERE name IN ('entries_level_1', 'entries_level_2') AND value IS NOT NULL GROUP BY ALL)
ORDER BY ALL;

-- gain: How many times as fast a chase over 2 GiB is on 2 MiB pages (2m: pool, thp: transparent) as on base pages, by CPU, hypervisor and version of the chase (measures); of each machine in the state that was measured last.
WITH each AS (
    SELECT machine, measures, large.pages, arg_max(base.ns / large.ns, least(base.until, large.until)) AS gain,
        arg_max(base.noisy + large.noisy, least(base.until, large.until)) AS noisy,
        arg_max(base.processes + large.processes, least(base.until, large.until)) AS processes
    FROM far base JOIN far large USING (machine, state, measures, engine)
    WHERE base.pages = '4k' AND large.pages <> '4k' GROUP BY ALL)
SELECT microarchitecture, cpu_model, hypervisor, measures, pages, i.n AS n, i.median AS median, i.low AS low, i.high AS high,
    i.coverage AS coverage, processes, noisy
FROM (SELECT microarchitecture, cpu_model, hypervisor, measures, pages, median_interval(list(gain)) AS i, sum(processes) AS processes,
        sum(noisy) AS noisy FROM each JOIN kinds USING (machine) GROUP BY ALL)
ORDER BY ALL;

-- splintered: Machines whose host splinters large pages, in the state that was measured last; and how many there are of each hypervisor.
WITH known AS (SELECT *, row_number() OVER (PARTITION BY machine ORDER BY measured_until DESC, state) AS age FROM machines
    WHERE host_pages IN ('splintered by the host', 'not splintered'))
SELECT machine, microarchitecture, cpu_model, hypervisor, kernel_release, of_hypervisor, splintered_of_hypervisor
FROM (SELECT *, count(*) OVER (PARTITION BY hypervisor) AS of_hypervisor,
        count(*) FILTER (host_pages = 'splintered by the host') OVER (PARTITION BY hypervisor) AS splintered_of_hypervisor
    FROM known WHERE age = 1)
WHERE host_pages = 'splintered by the host' ORDER BY ALL;

-- drift: What another Linux made of a chase over 2 GiB on base pages, on machines that one version of the chase (measures) measured under both: the later time over the earlier one.
WITH under AS (SELECT machine, kernel_release, measures, engine, min(until) AS until, median(ns) AS ns,
        sum(processes) AS processes, sum(noisy) AS noisy
    FROM far JOIN (SELECT machine, state, kernel_release FROM machines WHERE kernel_release IS NOT NULL) USING (machine, state)
    WHERE pages = '4k' GROUP BY ALL),
each AS (SELECT machine, measures, early.kernel_release AS "from", late.kernel_release AS "to", median(late.ns / early.ns) AS ratio,
        sum(early.processes + late.processes) AS processes, sum(early.noisy + late.noisy) AS noisy
    FROM under early JOIN under late USING (machine, measures, engine)
    WHERE early.until < late.until AND early.kernel_release <> late.kernel_release GROUP BY ALL),
grouped AS (SELECT microarchitecture, measures, "from", "to", median_interval(list(ratio)) AS i, sum(processes) AS processes,
        sum(noisy) AS noisy FROM each JOIN kinds USING (machine) GROUP BY ALL)
SELECT microarchitecture, measures, "from", "to", i.n AS n, i.median AS median, i.low AS low, i.high AS high, i.coverage AS coverage,
    processes, noisy
FROM grouped ORDER BY ALL;

-- differ: Machines that stand out from their kind (microarchitecture, hypervisor and version of the chase; five machines or more): quantities of the profile that lie 3.5 robust deviations, and 5 %, from the kind's median; the farthest first.
WITH versions AS (SELECT machine, max(measures) AS measures FROM rows WHERE kernel = 'page_chase' GROUP BY machine),
known AS (SELECT machine, p.microarchitecture, hypervisor, measures, name, unit, value
    FROM profile p JOIN kinds USING (machine) JOIN versions USING (machine) WHERE value IS NOT NULL AND part <> 'guests'),
middle AS (SELECT microarchitecture, hypervisor, measures, name, count(*) AS n, median(value) AS median,
        mad(value) / 0.6745 AS noise  -- of normal values (inference/scatter.py, NORMAL_MAD)
    FROM known GROUP BY ALL HAVING n >= 5)
SELECT machine, microarchitecture, hypervisor, name, unit, value, median, n, value / median AS times
FROM known JOIN middle USING (microarchitecture, hypervisor, measures, name)
WHERE abs(value - median) > 3.5 * noise AND abs(value - median) > 0.05 * abs(median)
ORDER BY abs(ln(abs(value / median))) DESC, machine, name;

-- noise: What disturbed processes while they measured, by hypervisor and kernel: how many, and their share of all.
WITH counted AS (SELECT kernel, machine, noisy, count(*) AS processes FROM rows GROUP BY ALL),
grouped AS (SELECT hypervisor, kernel, noisy, sum(processes) AS processes FROM counted JOIN kinds USING (machine) GROUP BY ALL)
SELECT * FROM (SELECT hypervisor, kernel, noisy, processes,
    processes / sum(processes) OVER (PARTITION BY hypervisor, kernel) AS share FROM grouped)
WHERE noisy <> '' ORDER BY ALL;

-- claims: On which sentences machines disagree that one version of the kernels (measures) measured: how many say holds, fails and cannot tell; the most disputed first.
SELECT chapter, claim, measures, count(*) FILTER (verdict = 'holds') AS holds, count(*) FILTER (verdict = 'fails') AS fails,
    count(*) FILTER (verdict = 'cannot tell') AS cannot_tell, count(*) FILTER (verdict = 'not testable here') AS not_testable
FROM verdicts GROUP BY ALL ORDER BY least(holds, fails) DESC, holds + fails DESC, chapter, claim, measures;
