package evidence

import (
	"fmt"
	"math"
)

// significance is the probability below which a difference between two groups counts as significant. The value 0.01 is
// lower than the usual 0.05, because the groups are compared after every change: with a significance of 0.05, up to 41
// % of the rollouts of a good version were halted within a day (TestFalseHalts).
const significance = 0.01

// IsWorse reports whether the updated runtimes fail significantly more often than the other runtimes, by Fisher's exact
// test (one-sided). If none of the other runtimes has failed, every failure of an updated runtime is significant.
func IsWorse(failedUpdated, updated, failedOther, other int) bool {
	if failedUpdated == 0 {
		return false
	}
	if failedOther == 0 {
		return true
	}
	return fisher(failedUpdated, updated, failedOther, other) < significance
}

// fisher compares the failures in two groups of runtimes with Fisher's exact test. The first group has n runtimes, and
// the number of its failed runtimes is the parameter a. The second group has m runtimes, and the number of its failed
// runtimes is the parameter b. fisher returns the probability that the first group gets this number of failures or more
// if all failures are spread over both groups by chance.
func fisher(a, n, b, m int) float64 {
	failed := a + b
	p := 0.0
	for k := a; k <= min(failed, n); k++ {
		if failed-k > m {
			continue
		}
		p += math.Exp(logChoose(n, k) + logChoose(m, failed-k) - logChoose(n+m, failed))
	}
	return min(p, 1)
}

// logChoose returns the logarithm of the binomial coefficient.
func logChoose(n, k int) float64 {
	lgamma := func(x int) float64 {
		v, _ := math.Lgamma(float64(x) + 1)
		return v
	}
	return lgamma(n) - lgamma(k) - lgamma(n-k)
}

// FailureRateBound returns a text with the upper bound of the failure rate of the whole fleet, computed from the
// results of n runtimes.
func FailureRateBound(failed, n int) string {
	switch {
	case n == 0:
		return "no evidence"
	case n < 3:
		return fmt.Sprintf("%d of %d failed: too few to say anything about the fleet", failed, n)
	case failed == n: // the bound is 100 %
		return fmt.Sprintf("all %d failed", n)
	case failed == 0:
		return fmt.Sprintf("0 of %d failed: true rate below %s %% with 95 %% confidence", n,
			percentNumber(3/float64(n)))
	}
	// upper is the upper bound of the failure rate by Wilson's score interval, one-sided, with 95 % confidence.
	const z = 1.645
	p, N := float64(failed)/float64(n), float64(n)
	upper := (p + z*z/(2*N) + z*math.Sqrt(p*(1-p)/N+z*z/(4*N*N))) / (1 + z*z/N)
	return fmt.Sprintf("%d of %d failed: true rate below %s %% with 95 %% confidence", failed, n, percentNumber(upper))
}

func percentNumber(p float64) string {
	if p >= 0.1 {
		return fmt.Sprintf("%.0f", math.Ceil(min(p, 1)*100))
	}
	return fmt.Sprintf("%.2g", p*100)
}
