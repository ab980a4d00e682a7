package plugin

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const subsystem = "cotenant_scheduler"

// They stand at /metrics of the scheduler, beside its own.
var (
	questions = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "questions_total", StabilityLevel: metrics.ALPHA,
		Help: "Questions to Cotenant by result: answered, refused (this one pod), failed, resting (not put, after a failure).",
	}, []string{"result"})
	seconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "question_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "For how long pods waited for Cotenant.",
		Buckets: []float64{0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2},
	})
	resting = metrics.NewGauge(&metrics.GaugeOpts{
		Subsystem: subsystem, Name: "resting", StabilityLevel: metrics.ALPHA,
		Help: "1 after a question that failed, until one is answered: pods are scheduled without Cotenant.",
	})
	pods = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "pods_total", StabilityLevel: metrics.ALPHA,
		Help: "Times that a pod which asks was tried, by result: advised, wrong (what it says of itself), unadvised.",
	}, []string{"result"})
	untold = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "untold_total", StabilityLevel: metrics.ALPHA,
		Help: "Placements that could not be told to Cotenant in time, so that only the inventory's sync tells of them.",
	})
	register sync.Once
)

func registerMetrics() {
	register.Do(func() { legacyregistry.MustRegister(questions, seconds, resting, pods, untold) })
}
