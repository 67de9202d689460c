-- Tables whose rows merge: the latest row of a key, the latest by a sequence, and aggregates.

-- name: upsert, all rows
SELECT * FROM latest

-- name: upsert, a key
SELECT * FROM latest WHERE id = 7 AND who = 'é'

-- name: upsert, a range of the key
SELECT id, who, v FROM latest WHERE id BETWEEN 10 AND 14

-- name: upsert, a value that older rows had
SELECT * FROM latest WHERE v < 60

-- name: upsert, a key and a value
SELECT * FROM latest WHERE id < 20 AND v >= 100

-- name: upsert, a null that replaced a value
SELECT id, who FROM latest WHERE note IS NULL

-- name: upsert, groups
SELECT who, count(*) AS n, sum(v) AS v, min(id) AS id, max(note) AS note FROM latest GROUP BY who

-- name: upsert, extremes of the key
SELECT min(id) AS lo, max(id) AS hi, max(who) AS who FROM latest

-- name: upsert, number of rows
SELECT count(*) AS n FROM latest

-- name: sequence, all rows
SELECT * FROM sequenced

-- name: sequence, filtered by itself
SELECT id, v FROM sequenced WHERE seq > 50

-- name: sequence, without one
SELECT id, v FROM sequenced WHERE seq IS NULL

-- name: sequence, groups of values
SELECT v, count(*) AS n FROM sequenced WHERE id >= 5 GROUP BY v

-- name: aggregate, all rows
SELECT * FROM totals

-- name: aggregate, a key
SELECT * FROM totals WHERE day = date '2024-01-03' AND shop = '店'

-- name: aggregate, sums that need no merge
SELECT day, sum(amount) AS amount, sum(cents) AS cents, sum(n) AS n FROM totals GROUP BY day

-- name: aggregate, extremes that need no merge
SELECT shop, min(lowest) AS lowest, max(highest) AS highest, max(shop) AS s FROM totals WHERE day > date '2024-01-02' GROUP BY shop

-- name: aggregate, an extreme of a sum needs the merge
SELECT max(amount) AS most, min(amount) AS least, count(*) AS keys FROM totals

-- name: aggregate, an average needs the merge
SELECT shop, avg(amount) AS a, count(amount) AS n FROM totals GROUP BY shop

-- name: aggregate, filtered by a merged sum
SELECT day, shop, amount FROM totals WHERE amount > 100

-- name: aggregate, filtered by a replaced text
SELECT day, shop, note FROM totals WHERE note >= 'n5'

-- name: aggregate, a sum filtered by a value
SELECT sum(amount) AS amount FROM totals WHERE highest > 2.5

-- name: aggregate, groups of a value
SELECT n, count(*) AS keys FROM totals GROUP BY n

-- name: aggregate, distinct shops
SELECT DISTINCT shop FROM totals WHERE n > 1

-- name: aggregate, sums with a condition on groups
SELECT shop, sum(amount) AS amount FROM totals GROUP BY shop HAVING sum(amount) > 10 ORDER BY shop

-- name: aggregate, a sum of an expression needs the merge
SELECT sum(amount * 2) AS amount, sum(amount + n) AS more FROM totals

-- name: aggregate, nothing
SELECT sum(amount) AS amount, count(*) AS n FROM totals WHERE day > date '2030-01-01'

-- name: two keyed tables joined
SELECT l.id, l.who, s.v FROM latest l JOIN sequenced s ON l.id = s.id WHERE s.id < 9

-- name: a keyed table in a subquery
SELECT count(*) AS n FROM latest WHERE id IN (SELECT id FROM sequenced WHERE v < 40)

-- name: a window over merged rows
SELECT shop, day, sum(amount) OVER (PARTITION BY shop ORDER BY day) AS running FROM totals

-- name: a column that came later
SELECT id, later, count(*) AS n FROM grown GROUP BY id, later

-- name: null where a column came later
SELECT id, v FROM grown WHERE later IS NULL AND v > 3
