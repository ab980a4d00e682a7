package plugin

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"cotenant-scheduler/rest"
)

const (
	prefix       = "cotenant.io/"
	kubevirt     = "kubevirt.io" // the label of KubeVirt's pods; virt-launcher runs a guest
	launcher     = "virt-launcher"
	mostPlaced   = 256 // placements that one question may report
	maxNodeScore = 100
)

type question = rest.AdviceArgs

// answer to a question. Scores is nil where something other than Cotenant answered.
type answer rest.AdviceAnswer

// asks reports whether a pod is advised on: a guest of KubeVirt, or one with a label, an annotation or a request of ours.
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

// slim gives what the service reads of a pod: no environment, no volumes, no applied configuration.
func slim(pod *v1.Pod) *rest.Pod {
	found := &rest.Pod{
		Metadata: rest.Metadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Labels: pod.Labels},
		Spec: &rest.PodSpec{
			Containers:     containers(pod.Spec.Containers),
			InitContainers: containers(pod.Spec.InitContainers),
			Overhead:       amounts(pod.Spec.Overhead),
		},
	}
	if pod.Spec.Resources != nil {
		found.Spec.Resources = &rest.Resources{Requests: amounts(pod.Spec.Resources.Requests)}
	}
	for _, owner := range pod.OwnerReferences {
		one := rest.Owner{Kind: owner.Kind, Name: owner.Name, Controller: owner.Controller != nil && *owner.Controller}
		found.Metadata.OwnerReferences = append(found.Metadata.OwnerReferences, one)
	}
	for key, text := range pod.Annotations {
		if strings.HasPrefix(key, prefix) || strings.HasPrefix(key, kubevirt+"/") {
			if found.Metadata.Annotations == nil {
				found.Metadata.Annotations = map[string]string{}
			}
			found.Metadata.Annotations[key] = text
		}
	}
	return found
}

func containers(some []v1.Container) []rest.Container {
	found := make([]rest.Container, 0, len(some))
	for i := range some {
		one := rest.Container{Image: some[i].Image, Resources: &rest.Resources{Requests: amounts(some[i].Resources.Requests)}}
		if some[i].RestartPolicy != nil {
			one.RestartPolicy = string(*some[i].RestartPolicy)
		}
		found = append(found, one)
	}
	return found
}

func amounts(of v1.ResourceList) map[string]string {
	found := make(map[string]string, len(of))
	for name, amount := range of {
		found[string(name)] = amount.String()
	}
	return found
}
