-- sqlite
-- NOW is (CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)


-- put: one entry

INSERT INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %(queue)s, %(id)s, %(body)s, %(neg_priority)s, '', %(command)s, '', 0, 0, 0, '', 0, 0, '', NOW, NOW, 0,
    %(neg_priority)s, NOW
)
ON CONFLICT (queue, id) DO NOTHING
RETURNING id;


-- put: two entries

INSERT INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
SELECT %s, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, 0, '',
    NOW, due,
    CASE WHEN due > NOW THEN CASE WHEN lane_number > 0 THEN 3 ELSE 1 END WHEN lane_number > 0 THEN lane_number
        ELSE 0 END, CASE WHEN due > NOW THEN 0 ELSE neg_priority END, due
FROM (
    SELECT *, CASE WHEN run_at > 0 THEN run_at ELSE NOW + delay END AS due
    FROM (
        SELECT column1 AS id, %s AS body, %s AS neg_priority, %s AS delay, %s AS run_at, %s AS lane,
            %s AS command, %s AS errors, %s AS attempts, %s AS failures, %s AS lost, %s AS gate,
            %s AS lane_number
        FROM (VALUES (%s), (%s))
    )
)
WHERE true
ON CONFLICT (queue, id) DO NOTHING
RETURNING id;


-- put: eight entries

INSERT INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
SELECT %s, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, 0, '',
    NOW, due,
    CASE WHEN due > NOW THEN CASE WHEN lane_number > 0 THEN 3 ELSE 1 END WHEN lane_number > 0 THEN lane_number
        ELSE 0 END, CASE WHEN due > NOW THEN 0 ELSE neg_priority END, due
FROM (
    SELECT *, CASE WHEN run_at > 0 THEN run_at ELSE NOW + delay END AS due
    FROM (
        SELECT column1 AS id, %s AS body, %s AS neg_priority, %s AS delay, %s AS run_at, %s AS lane,
            %s AS command, %s AS errors, %s AS attempts, %s AS failures, %s AS lost, %s AS gate,
            %s AS lane_number
        FROM (VALUES (%s), (%s), (%s), (%s), (%s), (%s), (%s), (%s))
    )
)
WHERE true
ON CONFLICT (queue, id) DO NOTHING
RETURNING id;


-- put: in a lane

BEGIN;
INSERT INTO djqueue_message (
    queue, id, body, neg_priority, lane, command, errors, attempts, failures, lost, gate, lane_number, token,
    owner, created, due_since, state, sort_key, sort_at
)
VALUES (
    %(queue)s, %(id)s, %(body)s, %(neg_priority)s, %(lane)s, %(command)s, %(errors)s, %(attempts)s,
    %(failures)s, %(lost)s, %(gate)s, %(lane_number)s, 0, '', NOW,
    CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END,
    CASE WHEN CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END > NOW THEN CASE WHEN
        %(lane_number)s > 0 THEN 3 ELSE 1 END WHEN %(lane_number)s > 0 THEN %(lane_number)s ELSE 0 END,
    CASE WHEN CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END > NOW THEN 0 ELSE
        %(neg_priority)s END, CASE WHEN %(run_at)s > 0 THEN %(run_at)s ELSE NOW + %(delay)s END
)
ON CONFLICT (queue, id) DO NOTHING
RETURNING id;
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
COMMIT;


-- put: once in 60 seconds

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until
WHERE djqueue_fact.until <= NOW;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until
WHERE djqueue_fact.until <= NOW;
-- INSERT as in: put: two entries
COMMIT;


-- put: unique

BEGIN;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter
RETURNING name, value, COALESCE(until > NOW, true);
SELECT NOW, m.id, m.state
FROM (SELECT 1 AS one) x
LEFT JOIN djqueue_message m ON m.queue = %s
  AND m.id IN (%s, %s);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
-- INSERT as in: put: two entries
COMMIT;


-- put: debounced

BEGIN;
-- INSERT as in: put: unique
-- SELECT as in: put: unique
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
-- INSERT as in: put: two entries
COMMIT;


-- put: debounced, one waits and is postponed

BEGIN;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter
RETURNING name, value, COALESCE(until > NOW, true);
-- SELECT as in: put: unique
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
UPDATE djqueue_message SET sort_at = %s, due_since = %s WHERE queue = %s AND id = %s AND state IN (1, 3);
COMMIT;


-- claim: nothing is there

SELECT NOW,
    (SELECT sort_key FROM djqueue_message WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key LIMIT 1),
    (
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ), (SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1),
    (SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1),
    (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    );


-- claim: two are ready

-- SELECT as in: claim: nothing is there
UPDATE djqueue_message
SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
)
RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number;
-- SELECT as in: claim: nothing is there


-- claim: more are asked for than are ready

-- SELECT as in: claim: nothing is there
-- UPDATE as in: claim: two are ready


-- claim: one is delayed and due

-- SELECT as in: claim: nothing is there
UPDATE djqueue_message
SET state = 0, sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 1
      AND sort_key = 0
      AND sort_at < NOW
    ORDER BY sort_at LIMIT %(limit)s
);
-- UPDATE as in: claim: two are ready
-- SELECT as in: claim: nothing is there


-- claim: from a lane, to which something came

-- SELECT as in: claim: nothing is there
SELECT created, seq, name, number, gate,
    (SELECT l.seq FROM djqueue_lane l WHERE l.queue = t.queue AND l.name = t.name) IS NOT NULL
FROM djqueue_ticket t
WHERE queue = %s
ORDER BY created LIMIT %s;
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
INSERT INTO djqueue_lane (
    queue, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
)
VALUES (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0)
ON CONFLICT (queue, name) DO NOTHING;
BEGIN;
SELECT l.seq, l.name, l.number, l.gate, l.in_flight, l.turn, l.not_before, l.paused_reason, l.rates, l.state,
    l.sort_key, l.sort_at
FROM djqueue_lane l
WHERE name IN (%s)
  AND queue = %s
ORDER BY name;
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
SELECT 0, 0, NOW, 0, 0
UNION ALL
SELECT *
FROM (
    SELECT state, seq, sort_key, sort_at, lost
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
) x
UNION ALL
SELECT *
FROM (
    SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost
    FROM djqueue_lane
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at LIMIT 1
) x;
UPDATE djqueue_message
SET state = %(leased)s, sort_key = 0, sort_at = :moment + %(lease)s, token = %(token)s, owner = %(owner)s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN djqueue_message.seq IN (:seqs) AND lost = 0 THEN 1 ELSE 0 END
WHERE seq IN (SELECT seq FROM djqueue_message WHERE djqueue_message.seq IN (:seqs) AND state >= 16)
RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number;
WITH u (seq, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at) AS (
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
)
UPDATE djqueue_lane AS l
SET gate = u.gate, in_flight = u.in_flight, turn = u.turn, not_before = u.not_before,
    paused_reason = u.paused_reason, rates = u.rates, state = u.state, sort_key = u.sort_key,
    sort_at = u.sort_at
FROM u
WHERE l.seq = u.seq;
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: from a lane with a limit and a window

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- claim: from a lane within another

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s, %s);
SELECT NOW;
INSERT INTO djqueue_lane (
    queue, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
)
VALUES (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0), (%s, %s, %s, %s, 0, %s, 0, '', '', 1, 0, 0)
ON CONFLICT (queue, name) DO NOTHING;
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
SELECT 0, 0, NOW, 0, 0
UNION ALL
SELECT *
FROM (
    SELECT state, seq, sort_key, sort_at, lost
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
) x
UNION ALL
SELECT *
FROM (
    SELECT state, seq, sort_key, sort_at, lost
    FROM djqueue_message
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
) x
UNION ALL
SELECT *
FROM (
    SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost
    FROM djqueue_lane
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at LIMIT 1
) x;
-- UPDATE as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
SELECT 0, 0, NOW, 0, 0
UNION ALL
SELECT *
FROM (
    SELECT -state AS state, 0 AS seq, sort_key, sort_at, 0 AS lost
    FROM djqueue_lane
    WHERE queue = %s
      AND state = %s
    ORDER BY sort_key, sort_at LIMIT 1
) x;
-- WITH as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: from lanes and in no lane

-- SELECT as in: claim: nothing is there
-- UPDATE as in: claim: two are ready
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
SELECT sort_key FROM djqueue_message WHERE queue = %s AND state = 0 ORDER BY sort_key, sort_at, seq LIMIT %s;
-- UPDATE as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: delayed and due in a lane

-- SELECT as in: claim: nothing is there
BEGIN;
SELECT seq, lane, lane_number, gate
FROM djqueue_message
WHERE queue = %s
  AND state = 3
  AND sort_key = 0
  AND sort_at < NOW
ORDER BY sort_at LIMIT 500;
UPDATE djqueue_message SET state = lane_number, sort_key = neg_priority, sort_at = due_since WHERE seq IN (%s);
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
COMMIT;
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- UPDATE as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- claim: from the failed queue

SELECT NOW,
    (SELECT sort_key FROM djqueue_message WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key LIMIT 1),
    (
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ), NULL, NULL, NULL, NULL;
-- UPDATE as in: claim: two are ready


-- claim: within a rate limit

SELECT NOW,
    (SELECT sort_key FROM djqueue_message WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key LIMIT 1),
    (
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at >= NOW
        ORDER BY sort_at LIMIT 1
    ), (SELECT 1 FROM djqueue_ticket WHERE queue = %(queue)s ORDER BY created LIMIT 1),
    (SELECT 1 FROM djqueue_lane WHERE queue = %(queue)s AND state = 0 ORDER BY sort_key, sort_at LIMIT 1),
    (
        SELECT sort_at
        FROM djqueue_lane
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT sort_at
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
        ORDER BY sort_at LIMIT 1
    ), (SELECT value FROM djqueue_fact WHERE name = %(key)s AND (until IS NULL OR until > NOW));
BEGIN;
-- INSERT as in: put: debounced, one waits and is postponed
SELECT NOW;
-- SELECT as in: claim: nothing is there
UPDATE djqueue_message
SET state = %(leased)s, sort_key = 0, sort_at = :moment + %(lease)s, token = %(token)s, owner = %(owner)s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN 1 = 1 AND lost = 0 THEN 1 ELSE 0 END
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
)
RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
COMMIT;
-- SELECT as in: claim: nothing is there


-- claim: within a rate limit, nothing is there

-- SELECT as in: claim: within a rate limit


-- exchange

BEGIN;
DELETE
FROM djqueue_message
WHERE seq IN (%s, %s)
  AND (seq, token) IN (VALUES (%s, %s), (%s, %s))
RETURNING seq, id;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
-- SELECT as in: claim: nothing is there
COMMIT;


-- exchange: two more are ready

BEGIN;
DELETE FROM djqueue_message WHERE seq IN (%s) AND (seq, token) IN (VALUES (%s, %s)) RETURNING seq, id;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
-- SELECT as in: claim: nothing is there
UPDATE djqueue_message
SET state = %(leased)s, sort_key = 0, sort_at = NOW + %(lease)s, token = %(token)s, owner = %(owner)s,
    attempts = CASE WHEN attempts < 2147483647 THEN attempts + 1 ELSE attempts END,
    begun = CASE WHEN 1 = 0 AND lost = 0 THEN 1 ELSE 0 END
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
)
RETURNING seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number;
COMMIT;
-- SELECT as in: claim: nothing is there


-- exchange: one is delayed and due

BEGIN;
DELETE FROM djqueue_message WHERE seq IN (%s) AND (seq, token) IN (VALUES (%s, %s)) RETURNING seq, id;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
-- SELECT as in: claim: nothing is there
-- UPDATE as in: claim: one is delayed and due
-- UPDATE as in: exchange: two more are ready
COMMIT;


-- begin

UPDATE djqueue_message
SET begun = 1
WHERE seq IN (%s, %s)
  AND (seq, token) IN (VALUES (%s, %s), (%s, %s))
  AND state IN (2, 4)
  AND sort_at > NOW
RETURNING seq;


-- touch

UPDATE djqueue_message
SET lost = CASE WHEN state NOT IN (2, 4) AND begun <> 0 AND lost > 0 THEN lost - 1 ELSE lost END,
    state = CASE WHEN state = 4 THEN 4 ELSE 2 END, sort_key = 0, sort_at = NOW + %s
WHERE seq IN (%s, %s)
  AND (seq, token) IN (VALUES (%s, %s), (%s, %s))
RETURNING seq, sort_at;


-- complete

BEGIN;
-- DELETE as in: exchange
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
COMMIT;


-- complete: and keep facts

BEGIN;
-- DELETE as in: exchange
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
COMMIT;


-- complete: in a lane

BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_message WHERE seq IN (%s) AND (seq, token) IN (VALUES (%s, %s)) RETURNING seq, id;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- release

WITH u (seq, token, delay, attempts, failures, lost, errors) AS (
    VALUES (%s, %s, %s, %s, %s, %s, %s), (%s, %s, %s, %s, %s, %s, %s)
)
UPDATE djqueue_message AS m
SET queue = %s,
    state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay > 0 THEN 1
        ELSE 0 END,
    sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END
        END, sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, token = 0, owner = '',
    attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM u
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING seq;


-- release: with a delay

-- WITH as in: release


-- release: in a lane

BEGIN;
-- SELECT as in: claim: from a lane, to which something came
WITH u (seq, token, delay, attempts, failures, lost, errors) AS (VALUES (%s, %s, %s, %s, %s, %s, %s))
UPDATE djqueue_message AS m
SET queue = %s,
    state = CASE WHEN state = 4 THEN CASE WHEN u.delay > 0 THEN 3 ELSE lane_number END WHEN u.delay > 0 THEN 1
        ELSE 0 END,
    sort_key = CASE WHEN u.delay > 0 THEN 0 ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END
        END, sort_at = CASE WHEN u.delay > 0 THEN NOW + u.delay ELSE due_since END, token = 0, owner = '',
    attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM u
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- fail

WITH u (seq, token, delay, attempts, failures, lost, errors) AS (
    VALUES (%s, %s, %s, %s, %s, %s, %s), (%s, %s, %s, %s, %s, %s, %s)
)
UPDATE djqueue_message AS m
SET queue = %s, state = 0, sort_key = 0, sort_at = :moment + u.delay, due_since = :moment + u.delay,
    token = 0, owner = '', attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM u
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING seq;


-- fail: and keep facts

BEGIN;
-- WITH as in: fail
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
COMMIT;


-- fail: in a lane

BEGIN;
-- SELECT as in: claim: from a lane, to which something came
WITH u (seq, token, delay, attempts, failures, lost, errors) AS (VALUES (%s, %s, %s, %s, %s, %s, %s))
UPDATE djqueue_message AS m
SET queue = %s, state = 0, sort_key = 0, sort_at = :moment + u.delay, due_since = :moment + u.delay,
    token = 0, owner = '', attempts = u.attempts, failures = u.failures, lost = u.lost, errors = u.errors
FROM u
WHERE m.seq = u.seq
  AND m.token = u.token
RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- fail: the failed queue has one of the same id

-- WITH as in: fail: in a lane
BEGIN;
SELECT seq, token, id FROM djqueue_message WHERE seq IN (%s);
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s) AND true;
-- WITH as in: fail: in a lane
COMMIT;


-- defer: in a lane

BEGIN;
-- SELECT as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
COMMIT;


-- reap: nothing has expired

SELECT NOW,
    EXISTS(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 2
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    ),
    (
        SELECT min(sort_at)
        FROM (
            SELECT *
            FROM (
                SELECT sort_at
                FROM djqueue_message
                WHERE queue = %(queue)s
                  AND state = 2
                  AND sort_key = 0
                  AND sort_at >= NOW
                ORDER BY sort_at LIMIT 1
            ) x
            UNION ALL
            SELECT *
            FROM (
                SELECT sort_at
                FROM djqueue_message
                WHERE queue = %(queue)s
                  AND state = 4
                  AND sort_key = 0
                  AND sort_at >= NOW
                ORDER BY sort_at LIMIT 1
            ) x
        ) y
    ),
    EXISTS(
        SELECT seq
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 4
          AND sort_key = 0
          AND sort_at < NOW
        ORDER BY sort_at LIMIT 1
    );


-- reap

-- SELECT as in: reap: nothing has expired
UPDATE djqueue_message
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = 0,
    sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 2
      AND sort_key = 0
      AND sort_at < NOW
      AND NOW <= %(by)s
    ORDER BY sort_at LIMIT %(limit)s
);


-- reap: in a lane

-- SELECT as in: reap: nothing has expired
SELECT seq, lane, gate
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 4
  AND sort_key = 0
  AND sort_at < NOW
ORDER BY sort_at LIMIT %(limit)s;
BEGIN;
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
-- SELECT as in: claim: from a lane, to which something came
SELECT m.seq, lane FROM djqueue_message m WHERE m.seq IN (%s) AND state = 4 AND sort_at < NOW AND NOW <= %s;
UPDATE djqueue_message
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = lane_number,
    sort_key = neg_priority, sort_at = due_since, token = 0, owner = ''
WHERE seq IN (%s);
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- reclaim

UPDATE djqueue_message
SET lost = CASE WHEN begun <> 0 AND lost < 2147483647 THEN lost + 1 ELSE lost END, state = 0,
    sort_key = CASE WHEN queue LIKE '%:failed' THEN 0 ELSE neg_priority END, sort_at = due_since
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 2
      AND sort_key = 0
      AND owner = %(owner)s
    ORDER BY sort_at LIMIT %(limit)s
);
SELECT seq, lane, gate
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 4
  AND sort_key = 0
  AND owner = %(owner)s
ORDER BY sort_at LIMIT %(limit)s;


-- reclaim: in a lane

-- UPDATE as in: reclaim
-- SELECT as in: reclaim
BEGIN;
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
-- SELECT as in: claim: from a lane, to which something came
SELECT m.seq, lane FROM djqueue_message m WHERE m.seq IN (%s) AND state = 4 AND owner = %s;
-- UPDATE as in: reap: in a lane
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- sweep

SELECT name FROM djqueue_lane WHERE queue = %s AND in_flight > 0 AND name > %s ORDER BY name LIMIT %s;
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
SELECT m.lane, l.gate, count(*)
FROM djqueue_message m
LEFT JOIN djqueue_lane l ON l.queue = m.queue
  AND l.name = m.lane
WHERE m.queue = %s
  AND m.state = 4
GROUP BY m.lane, l.gate;
-- SELECT as in: claim: from a lane, to which something came
COMMIT;
SELECT m.state, m.lane, m.gate, l.seq
FROM (
    SELECT state, lane, gate
    FROM djqueue_message
    WHERE queue = %s
      AND state > %s
      AND state > 4
      AND gate <> ''
    ORDER BY state LIMIT %s
) m
LEFT JOIN djqueue_lane l ON l.queue = %s
  AND l.name = m.lane;
-- SELECT as in: claim: from a lane, to which something came


-- find

SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW
FROM djqueue_message
WHERE queue = %s
  AND id = %s;


-- peek: ready

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;


-- peek: ready, behind a cursor

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
  AND (sort_key, sort_at, seq) > (%(sort_key)s, %(sort_at)s, %(seq)s)
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;


-- peek: ready, in lanes

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
-- SELECT as in: peek: ready
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;
SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = :lane
ORDER BY sort_key, sort_at, seq LIMIT %(limit)s;
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;


-- newest

SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
    sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
FROM djqueue_message
WHERE queue = %(queue)s
  AND state = 0
ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT %(limit)s;


-- peek_lane

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
-- SELECT as in: peek: ready, in lanes


-- peek: delayed

-- UPDATE as in: claim: one is delayed and due
-- SELECT as in: claim: nothing is there
SELECT *
FROM (
    SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
        sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 1
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
) x
UNION ALL
SELECT *
FROM (
    SELECT seq, body, id, neg_priority, due_since, created, lane, attempts, failures, lost, command, errors,
        sort_at, gate, lane_number, state, sort_key, owner, NOW AS looked
    FROM djqueue_message
    WHERE queue = %(queue)s
      AND state = 3
    ORDER BY sort_key, sort_at, seq LIMIT %(limit)s
) x;


-- stats

SELECT (
    SELECT count(*) FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = 0 LIMIT 100000) x
), laned.many,
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at < NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 3
              AND sort_key = 0
              AND sort_at < NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 1
              AND sort_key = 0
              AND sort_at >= NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM djqueue_message
            WHERE queue = %(queue)s
              AND state = 3
              AND sort_key = 0
              AND sort_at >= NOW
            LIMIT 100000
        ) x
    ),
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = 2 LIMIT 100000) x
    ),
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = 4 LIMIT 100000) x
    ),
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(failed)s AND state = 0 LIMIT 100000) x
    ),
    (
        SELECT sum(counter)
        FROM djqueue_fact
        WHERE name IN (
            %(k0)s, %(k1)s, %(k2)s, %(k3)s, %(k4)s, %(k5)s, %(k6)s, %(k7)s, %(k8)s, %(k9)s, %(k10)s, %(k11)s,
            %(k12)s, %(k13)s, %(k14)s, %(k15)s
        )
    ), NOW,
    (
        SELECT min(sort_at)
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 1
          AND sort_key = 0
          AND sort_at < NOW
    ),
    (
        SELECT min(sort_at)
        FROM djqueue_message
        WHERE queue = %(queue)s
          AND state = 3
          AND sort_key = 0
          AND sort_at < NOW
    ),
    (
        WITH RECURSIVE p (sort_key, n) AS (
            SELECT (
                SELECT r.sort_key
                FROM djqueue_message r
                WHERE r.queue = %(queue)s
                  AND r.state = 0
                ORDER BY r.sort_key LIMIT 1
            ), 1
            UNION ALL
            SELECT (
                SELECT r.sort_key
                FROM djqueue_message r
                WHERE r.queue = %(queue)s
                  AND r.state = 0
                  AND r.sort_key > p.sort_key
                ORDER BY r.sort_key LIMIT 1
            ), n + 1
            FROM p
            WHERE p.sort_key IS NOT NULL
              AND n < 64
        )
        SELECT min(
            (
                SELECT r.sort_at
                FROM djqueue_message r
                WHERE r.queue = %(queue)s
                  AND r.state = 0
                  AND r.sort_key = p.sort_key
                ORDER BY r.sort_at LIMIT 1
            )
        )
        FROM p
    ), laned.oldest
FROM (
    SELECT count(*) AS many, min(sort_at) AS oldest
    FROM (
        SELECT m.sort_at
        FROM (
            SELECT number
            FROM djqueue_lane
            WHERE queue = %(queue)s
            UNION
            SELECT number
            FROM djqueue_ticket
            WHERE queue = %(queue)s
        ) l
        CROSS JOIN djqueue_message m ON m.queue = %(queue)s
          AND m.state = l.number
        LIMIT 100000
    ) x
) laned;


-- length

SELECT (SELECT count(*) FROM djqueue_message WHERE queue = %(queue)s AND state IN (0, 1, 3)) + (
    SELECT count(*)
    FROM (
        SELECT number
        FROM djqueue_lane
        WHERE queue = %(queue)s
        UNION
        SELECT number
        FROM djqueue_ticket
        WHERE queue = %(queue)s
    ) l
    CROSS JOIN djqueue_message m ON m.queue = %(queue)s
      AND m.state = l.number
);


-- remove

BEGIN;
SELECT DISTINCT lane, ABS(lane_number), gate
FROM djqueue_message
WHERE queue = %s
  AND id IN (%s, %s)
  AND lane_number <> 0;
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s, %s) AND state NOT IN (2, 4);
COMMIT;


-- cancel

BEGIN;
SELECT DISTINCT lane, ABS(lane_number), gate
FROM djqueue_message
WHERE queue = %s
  AND id IN (%s)
  AND lane_number <> 0;
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s) AND state NOT IN (2, 4);
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
COMMIT;


-- remove: from a lane

BEGIN;
-- SELECT as in: remove
INSERT INTO djqueue_ticket (queue, created, name, number, gate) VALUES (%s, NOW, %s, %s, %s);
DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s, %s) AND state NOT IN (2, 4);
COMMIT;


-- remove: from the failed queue

DELETE FROM djqueue_message WHERE queue = %s AND id IN (%s, %s) AND state NOT IN (2, 4);


-- reprioritise

BEGIN;
-- SELECT as in: remove
UPDATE djqueue_message
SET neg_priority = CASE WHEN lane_number = 0 THEN %s ELSE %s END,
    sort_key = CASE WHEN state IN (1, 3) OR queue LIKE '%:failed' THEN 0 ELSE CASE WHEN lane_number = 0 THEN
        %s ELSE %s END END
WHERE queue = %s
  AND id IN (%s, %s)
  AND state NOT IN (2, 4);
COMMIT;


-- promote

BEGIN;
-- SELECT as in: cancel
UPDATE djqueue_message
SET sort_at = CASE WHEN due_since > NOW THEN NOW ELSE due_since END,
    due_since = CASE WHEN due_since > NOW THEN NOW ELSE due_since END,
    sort_key = CASE WHEN state = 3 THEN neg_priority ELSE CASE WHEN queue LIKE '%:failed' THEN 0 ELSE
        neg_priority END END, state = CASE WHEN state = 3 THEN lane_number ELSE 0 END
WHERE queue = %s
  AND id IN (%s)
  AND state IN (1, 3);
COMMIT;


-- amend

UPDATE djqueue_message SET body = %s WHERE queue = %s AND id = %s AND state NOT IN (2, 4) AND body = %s;


-- requeue

BEGIN;
-- SELECT as in: remove
UPDATE djqueue_message AS m
SET seq = x.last, queue = %s, lane_number = ABS(lane_number), state = ABS(lane_number),
    sort_key = neg_priority, sort_at = NOW, due_since = NOW, created = NOW, token = 0, owner = '',
    attempts = 0, failures = 0, lost = 0
FROM (
    SELECT seq, (SELECT max(seq) FROM djqueue_message) + row_number() OVER (ORDER BY sort_at, seq) AS last
    FROM djqueue_message d
    WHERE queue = %s
      AND id IN (%s, %s)
      AND state NOT IN (2, 4)
      AND (SELECT o.seq FROM djqueue_message o WHERE o.queue = %s AND o.id = d.id) IS NULL
) x
WHERE m.seq = x.seq;
COMMIT;


-- trim: nothing

SELECT sort_key
FROM (
    SELECT sort_key, sort_at
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
    ORDER BY sort_key, sort_at, seq LIMIT 1
) f
WHERE sort_at < NOW - %s;
SELECT sort_key, sort_at, seq
FROM djqueue_message
WHERE queue = %s
  AND state = 0
ORDER BY sort_key DESC, sort_at DESC, seq DESC LIMIT 1 OFFSET %s;


-- trim: by count

-- SELECT as in: trim: nothing
DELETE
FROM djqueue_message
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
      AND (sort_key, sort_at, seq) <= (0, :moment, :seq)
    ORDER BY sort_key, sort_at, seq LIMIT %s
);


-- trim: by age

-- SELECT as in: trim: nothing
DELETE
FROM djqueue_message
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state = 0
      AND sort_key = %s
      AND sort_at < NOW - %s
    ORDER BY sort_key, sort_at, seq LIMIT %s
);


-- flush

DELETE
FROM djqueue_message
WHERE seq IN (
    SELECT seq FROM djqueue_message WHERE queue = %s AND state = %s ORDER BY sort_key, sort_at, seq LIMIT %s
);
DELETE
FROM djqueue_message
WHERE seq IN (
    SELECT seq FROM djqueue_message WHERE queue = %s AND state = %s ORDER BY sort_key, sort_at, seq LIMIT %s
);
DELETE
FROM djqueue_message
WHERE seq IN (
    SELECT seq FROM djqueue_message WHERE queue = %s AND state = %s ORDER BY sort_key, sort_at, seq LIMIT %s
);
SELECT name FROM djqueue_lane WHERE queue = %s AND name > %s ORDER BY name LIMIT %s;
SELECT created, seq, name
FROM djqueue_ticket
WHERE queue = %s
  AND created >= %s
  AND (created > %s OR seq > %s)
ORDER BY created, seq LIMIT %s;
DELETE
FROM djqueue_message
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state IN (:lane)
    ORDER BY state, sort_key, sort_at, seq LIMIT %s
);
DELETE
FROM djqueue_message
WHERE seq IN (
    SELECT seq
    FROM djqueue_message
    WHERE queue = %s
      AND state IN (:lane)
    ORDER BY state, sort_key, sort_at, seq LIMIT %s
);
SELECT created, seq, name
FROM djqueue_ticket
WHERE queue = %s
  AND created >= %s
  AND (created > %s OR seq > %s)
ORDER BY created, seq LIMIT %s;
INSERT INTO djqueue_ticket (queue, created, name, number, gate)
SELECT queue, NOW, name, number, ''
FROM djqueue_lane
WHERE queue = %s
  AND (state = 0 OR state >= 16);


-- lanes

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
SELECT seq, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
FROM djqueue_lane
WHERE queue = %s
  AND name > %s
ORDER BY name LIMIT %s;
SELECT :lane AS state,
    (
        SELECT count(*)
        FROM (SELECT 1 FROM djqueue_message WHERE queue = %(queue)s AND state = :lane LIMIT 10000) x
    ) AS waiting;
SELECT lane, gate, count(*) FROM djqueue_message WHERE queue = %s AND state = 4 GROUP BY lane, gate;


-- lane

-- SELECT as in: claim: nothing is there
-- SELECT as in: claim: from a lane, to which something came
SELECT name FROM djqueue_lane WHERE queue = %s AND name IN (%s);
SELECT NOW;
-- INSERT as in: claim: from a lane, to which something came
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
DELETE FROM djqueue_ticket WHERE seq IN (%s) RETURNING seq;
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;
-- SELECT as in: claim: nothing is there
SELECT seq, name, number, gate, in_flight, turn, not_before, paused_reason, rates, state, sort_key, sort_at
FROM djqueue_lane
WHERE queue = %s
  AND name = %s;
-- SELECT as in: lanes
SELECT lane, gate, count(*) FROM djqueue_message WHERE queue = %s AND state = 4 GROUP BY lane, gate;


-- pause_lane

-- SELECT as in: claim: nothing is there
BEGIN;
-- SELECT as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- resume_lane

BEGIN;
-- SELECT as in: claim: from a lane, to which something came
-- SELECT as in: claim: from a lane, to which something came
-- WITH as in: claim: from a lane, to which something came
COMMIT;


-- history: complete

BEGIN;
-- DELETE as in: exchange
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
COMMIT;


-- history: complete what is not all held

BEGIN;
-- DELETE as in: exchange
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
COMMIT;


-- history: exchange

BEGIN;
-- DELETE as in: exchange
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
-- SELECT as in: claim: nothing is there
COMMIT;


-- history: fail

BEGIN;
-- WITH as in: fail
INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);
COMMIT;


-- history: remember

INSERT INTO djqueue_history (queue, at, count, first_id, last_id, records) VALUES (%s, NOW, %s, %s, %s, %s);


-- history: history_of

SELECT records
FROM djqueue_history
WHERE queue = %s
  AND first_id <= %s
  AND last_id >= %s
  AND instr(records, %s) > 0
ORDER BY seq DESC LIMIT 1;


-- history: history

SELECT h.seq, h.records
FROM (
    SELECT seq, sum(count) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - count AS newer
    FROM (SELECT seq, count FROM djqueue_history WHERE queue = %s AND seq <= %s ORDER BY seq DESC LIMIT %s) s
) n JOIN djqueue_history h ON h.seq = n.seq
WHERE n.newer < %s
ORDER BY h.seq DESC;


-- history: history, a later page

-- SELECT as in: history: history
SELECT seq, records
FROM djqueue_history
WHERE queue = %s
  AND seq > %s
  AND first_id <= %s
  AND last_id >= %s
ORDER BY seq LIMIT %s;


-- history: trim_history

SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE at < NOW - %s;
SELECT COALESCE(max(seq), 0) FROM djqueue_history WHERE queue = %s;
SELECT h.seq, n.newer, h.records
FROM (
    SELECT seq, count AS here, sum(count) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - count AS newer
    FROM djqueue_history
    WHERE queue = %s
) n JOIN djqueue_history h ON h.seq = n.seq
WHERE n.newer + n.here > %s
ORDER BY h.seq DESC LIMIT 1;
UPDATE djqueue_history SET count = %s, records = %s WHERE seq = %s;
SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE seq < %s;


-- history: trim_history, nothing

SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE at < NOW - %s;
SELECT COALESCE(max(seq), 0) FROM djqueue_history WHERE queue = %s;
-- SELECT as in: history: trim_history
SELECT seq, count
FROM (SELECT seq, count, at FROM djqueue_history WHERE queue = %s ORDER BY seq LIMIT %s) o
WHERE seq < %s;


-- facts: now

SELECT NOW;


-- facts: get

SELECT value FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);


-- facts: get_many

SELECT name, value FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);


-- facts: put

INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;


-- facts: put_many

INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0), (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;


-- facts: add

-- INSERT as in: put: once in 60 seconds


-- facts: swap

UPDATE djqueue_fact
SET value = %s, until = NOW + %s
WHERE name = %s
  AND value = %s
  AND (until IS NULL OR until > NOW);


-- facts: swap_many

BEGIN;
-- INSERT as in: put: unique
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, %s, NOW + %s, 0)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until;
COMMIT;


-- facts: drop

DELETE FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);


-- facts: drop, if it has this value

DELETE FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW) AND value = %s;


-- facts: acquire of a rate limit

BEGIN;
-- INSERT as in: put: debounced, one waits and is postponed
SELECT value FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);
SELECT NOW;
-- INSERT as in: put: once in 60 seconds
COMMIT;


-- facts: give back

BEGIN;
-- INSERT as in: put: debounced, one waits and is postponed
SELECT value FROM djqueue_fact WHERE name = %s AND (until IS NULL OR until > NOW);
-- UPDATE as in: facts: swap
COMMIT;


-- facts: prune

DELETE
FROM djqueue_fact
WHERE name IN (SELECT name FROM djqueue_fact WHERE until <= NOW ORDER BY until LIMIT %s);


-- put: with REMEMBER_DONE

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
-- INSERT as in: put: two entries
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
COMMIT;


-- put: with REMEMBER_DONE, once in 60 seconds

BEGIN;
SELECT id FROM djqueue_message WHERE queue = %s AND id IN (%s, %s);
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
-- INSERT as in: put: once in 60 seconds
-- INSERT as in: put: once in 60 seconds
-- INSERT as in: put: two entries
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);
COMMIT;


-- claim: with REMEMBER_DONE

-- SELECT as in: claim: nothing is there
-- UPDATE as in: claim: two are ready
-- SELECT as in: claim: nothing is there
SELECT name FROM djqueue_fact WHERE name IN (%s, %s) AND (until IS NULL OR until > NOW);


-- complete: with REMEMBER_DONE

BEGIN;
-- DELETE as in: exchange
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NULL, %s)
ON CONFLICT (name) DO UPDATE SET counter = djqueue_fact.counter + excluded.counter;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NOW + %s, %s)
ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter;
INSERT INTO djqueue_fact (name, value, until, counter)
VALUES (%s, x'', NOW + %s, %s)
ON CONFLICT (name) DO UPDATE SET until = excluded.until, counter = excluded.counter;
COMMIT;


-- facts: prune, with KEEP_DONE

DELETE
FROM djqueue_fact
WHERE name IN (SELECT name FROM djqueue_fact WHERE until <= NOW ORDER BY until LIMIT %s);
SELECT until, counter
FROM djqueue_fact
WHERE name >= %s
  AND name < %s
ORDER BY until DESC, counter DESC LIMIT 1 OFFSET %s;
