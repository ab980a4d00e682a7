package plugin

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	prefix       = "cotenant.io/"
	kubevirt     = "kubevirt.io" // the label of KubeVirt's pods; virt-launcher runs a guest
	launcher     = "virt-launcher"
	mostPlaced   = 256 // pods whose placement one question tells
	maxNodeScore = 100
)

// question of POST /kubernetes/advice.
type question struct {
	Pod       *v1.Pod     `json:"Pod"`
	NodeNames []string    `json:"NodeNames"`
	Without   []string    `json:"Without,omitempty"`
	Placed    []placedPod `json:"Placed,omitempty"`
	Released  []*v1.Pod   `json:"Released,omitempty"`
	Hold      bool        `json:"Hold,omitempty"` // the node, the only one that is named, if the pod may go there
}

type placedPod struct {
	Pod      *v1.Pod `json:"Pod"`
	NodeName string  `json:"NodeName"`
}

// answer to it. Scores is nil where somebody else answered. PerNode = each node's part says the same whichever others
// are asked about, so that it stands until the node changes.
type answer struct {
	Failed       map[string]string `json:"FailedNodes"`
	Unresolvable map[string]string `json:"FailedAndUnresolvableNodes"`
	Scores       map[string]int64  `json:"Scores"`
	Error        string            `json:"Error"`
	PerNode      bool              `json:"PerNode"`
	Others       bool              `json:"Others"` // had nodes held lately, too
}

// asks tells whether a pod is advised on: a guest of KubeVirt, or one with a label, an annotation or a request of ours.
func asks(pod *v1.Pod) bool {
	if pod.Labels[kubevirt] == launcher {
		return true
	}
	for _, some := range []map[string]string{pod.Labels, pod.Annotations} {
		for key := range some {
			if strings.HasPrefix(key, prefix) {
				return true
			}
		}
	}
	for i := range pod.Spec.Containers {
		for name := range pod.Spec.Containers[i].Resources.Requests {
			if strings.HasPrefix(string(name), prefix) {
				return true
			}
		}
	}
	return false
}

// slim is what the service reads of a pod: no environment, no volumes, no applied configuration.
func slim(pod *v1.Pod) *v1.Pod {
	found := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
		},
		Spec: v1.PodSpec{
			Containers:     containers(pod.Spec.Containers),
			InitContainers: containers(pod.Spec.InitContainers),
			Overhead:       pod.Spec.Overhead,
			Resources:      pod.Spec.Resources,
		},
	}
	for key, text := range pod.Annotations {
		if strings.HasPrefix(key, prefix) || strings.HasPrefix(key, kubevirt+"/") {
			metav1.SetMetaDataAnnotation(&found.ObjectMeta, key, text)
		}
	}
	return found
}

func containers(some []v1.Container) []v1.Container {
	found := make([]v1.Container, 0, len(some))
	for i := range some {
		found = append(found, v1.Container{
			Name: some[i].Name, Image: some[i].Image, RestartPolicy: some[i].RestartPolicy,
			Resources: v1.ResourceRequirements{Requests: some[i].Resources.Requests},
		})
	}
	return found
}
