-- Awkward values: nulls, NaN, both zeros, negative decimals, unicode, zones, nested values.

-- name: all flat columns
SELECT name, x, n, b, i8, i16, i, l, f, d, dec, wide, s, bin, dt, ts, tn FROM zoo

-- name: all columns with nested ones
SELECT * FROM zoo

-- name: key beyond the basic plane
SELECT name, i FROM zoo WHERE name = '😀'

-- name: key with a combining mark is not its composed form
SELECT name, i FROM zoo WHERE name = 'é'

-- name: the empty string as key
SELECT name, x, i FROM zoo WHERE name = ''

-- name: range of unicode keys
SELECT name, n FROM zoo WHERE name >= 'z' AND name < '😀'

-- name: keys in order
SELECT name, x, n, i FROM zoo ORDER BY name, x, n, i

-- name: keys in reverse order
SELECT name, x, n, i FROM zoo ORDER BY name DESC, x DESC, n DESC, i DESC NULLS FIRST LIMIT 20

-- name: NaN in the key
SELECT name, x, i FROM zoo WHERE x = double('NaN')

-- name: NaN is larger than infinity
SELECT name, x, i FROM zoo WHERE x > double('Infinity')

-- name: larger than a number includes NaN
SELECT name, i, d FROM zoo WHERE d > 1.0

-- name: smaller than a number excludes NaN
SELECT name, i, d FROM zoo WHERE d < 1.0D

-- name: both zeros are equal
SELECT name, x, i, f FROM zoo WHERE x = 0 OR f = 0

-- name: negative zero as constant
SELECT name, x, i FROM zoo WHERE x = -0.0D

-- name: groups of floats
SELECT f, count(*) AS n FROM zoo GROUP BY f

-- name: extremes with NaN
SELECT max(d) AS d, min(d) AS e, max(f) AS f, min(x) AS x, max(x) AS y FROM zoo

-- name: sum of floats
SELECT i8, sum(d) AS d, avg(f) AS f FROM zoo WHERE d BETWEEN -100 AND 100 AND f BETWEEN -100 AND 100 GROUP BY i8

-- name: negative decimals in the key
SELECT name, n, i FROM zoo WHERE n < -1.5

-- name: a decimal against more digits than it has
SELECT name, n, dec FROM zoo WHERE n > -0.005 AND n <= 0.0049

-- name: sums and averages of decimals
SELECT b, sum(dec) AS s, avg(dec) AS a, min(dec) AS lo, max(wide) AS hi, count(wide) AS n FROM zoo GROUP BY b

-- name: averages of products with many digits
SELECT b, avg(i * dec) AS a, avg(CAST(l AS decimal(20,0)) * CAST(i8 AS decimal(4,1))) AS w FROM zoo GROUP BY b

-- name: quotients with few and with many digits
SELECT name, n / 7 AS a, n / -2.5 AS b, 1 / (n * n + 1) AS c, dec / 3 AS d FROM zoo

-- name: decimals and integers together
SELECT name, dec * 2 AS twice, dec + i8 AS more, -dec AS less FROM zoo WHERE dec IS NOT NULL

-- name: null in a value
SELECT name, i FROM zoo WHERE s IS NULL

-- name: not null in a value
SELECT count(*) AS n, count(s) AS s, count(d) AS d, count(bin) AS bin FROM zoo WHERE l IS NOT NULL

-- name: null is neither equal nor different
SELECT name, i FROM zoo WHERE i <> 3

-- name: null-safe equality
SELECT name, i FROM zoo WHERE i <=> NULL

-- name: NOT IN with null
SELECT name, i FROM zoo WHERE i NOT IN (1, 2, NULL)

-- name: a negated disjunction with nulls
SELECT name, i FROM zoo WHERE NOT (i > 0 OR s = 'abc')

-- name: booleans
SELECT name, b FROM zoo WHERE b AND i8 > 0

-- name: a boolean is not true
SELECT count(*) AS n FROM zoo WHERE b IS NOT TRUE

-- name: binary values
SELECT name, bin FROM zoo WHERE bin > X'00' AND bin < X'FF'

-- name: smallest and largest integers
SELECT name, i8, i16, i, l FROM zoo WHERE l = -9223372036854775808 OR i = 2147483647 OR i8 = -128

-- name: an integer against a constant out of its range
SELECT count(*) AS n FROM zoo WHERE i < 3000000000 AND i8 > -1000

-- name: LIKE on unicode
SELECT name, s FROM zoo WHERE name LIKE '%é%' OR s LIKE '_'

-- name: dates before the epoch
SELECT name, dt FROM zoo WHERE dt < date '1970-01-01'

-- name: timestamps with a zone
SELECT name, ts FROM zoo WHERE ts >= timestamp '1969-12-31 23:59:59.999999 UTC' AND ts < timestamp '2020-06-01 14:30:00+02:00'

-- name: timestamps without a zone
SELECT name, tn FROM zoo WHERE tn = timestamp_ntz '2020-01-01 00:00:00'

-- name: a timestamp against a text
SELECT name, ts, tn FROM zoo WHERE ts > '2020-01-01' OR tn < '1970-01-01'

-- name: parts of dates
SELECT year(dt) AS y, month(dt) AS m, count(*) AS n FROM zoo GROUP BY year(dt), month(dt)

-- name: inside nested values
SELECT name, get(arr, 0) AS first, rec.a AS a, m['k'] AS k FROM zoo WHERE rec.a IS NOT NULL

-- name: lengths and cases of unicode
SELECT name, length(name) AS n, upper(name) AS u, octet_length(name) AS bytes FROM zoo

-- name: ranks in key order
SELECT name, x, i, dense_rank() OVER (ORDER BY name, x) AS place FROM zoo

-- name: joined with itself by floats
SELECT a.i AS a, b.i AS b FROM zoo a JOIN zoo b ON a.d = b.d WHERE a.i < b.i

-- name: CASE and coalesce
SELECT name, CASE WHEN d > 0 THEN 'plus' WHEN d <= 0 THEN 'minus' ELSE 'none' END AS sign, coalesce(s, name) AS t FROM zoo

-- name: nothing at all
SELECT name, arr FROM zoo WHERE false
