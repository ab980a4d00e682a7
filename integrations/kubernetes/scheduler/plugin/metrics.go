package plugin

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "cotenant_scheduler"

// The metrics are at /metrics of the scheduler, beside its own.
var (
	questions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "questions_total", StabilityLevel: metrics.ALPHA,
		Help: "Questions to Cotenant by result: answered, refused (about one pod), failed, resting (not asked, after a failure).",
	}, []string{"result"})
	seconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "question_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Seconds that pods waited for Cotenant.",
		Buckets: []float64{0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2},
	})
	resting = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "resting", StabilityLevel: metrics.ALPHA,
		Help: "1 after a question that failed, until one is answered: pods are scheduled without Cotenant.",
	})
	pods = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "pods_total", StabilityLevel: metrics.ALPHA,
		Help: "Attempts to schedule pods that ask, by result: advised, wrong (the pod describes itself wrongly), unadvised.",
	}, []string{"result"})
	untold = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "untold_total", StabilityLevel: metrics.ALPHA,
		Help: "Placements that could not be reported to Cotenant in time, so that only the inventory's sync shows them.",
	})
	register sync.Once
)

func registerMetrics() {
	register.Do(func() { legacyregistry.MustRegister(questions, seconds, resting, pods, untold) })
}
