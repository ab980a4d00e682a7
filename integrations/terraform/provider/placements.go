package provider

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-cotenant/rest"
)

const mostAtOnce = 200 // instances of one question, as the service takes them

// candidate is what the configuration reads of a candidate: the new VM's ratio beside the fields of the host.
type candidate struct {
	rest.Candidate
	ThroughputRatio rest.Band `tfsdk:"throughput_ratio"`
}

// placement is what the configuration reads of one instance.
type placement struct {
	Host       string      `tfsdk:"host"`
	Degraded   bool        `tfsdk:"degraded"`
	Notes      []string    `tfsdk:"notes"`
	Candidates []candidate `tfsdk:"candidates"`
}

type model struct {
	Instances   []rest.NewInstance    `tfsdk:"instance"`
	Hosts       types.List            `tfsdk:"hosts"`
	Constraints *rest.ConstraintsBody `tfsdk:"constraints"`
	Objective   *string               `tfsdk:"objective"`
	Limit       *int64                `tfsdk:"limit"`
	Order       *string               `tfsdk:"order"`
	TimeLimitS  *float64              `tfsdk:"time_limit_s"`
	Placements  map[string]placement  `tfsdk:"placements"`
}

type placements struct{ client *client }

func newPlacements() datasource.DataSource { return &placements{} }

func (p *placements) Metadata(_ context.Context, request datasource.MetadataRequest, answer *datasource.MetadataResponse) {
	answer.TypeName = request.ProviderTypeName + "_placements"
}

func text(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Description: description}
}

func number(description string) schema.Float64Attribute {
	return schema.Float64Attribute{Optional: true, Description: description}
}

func flag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{Optional: true, Description: description}
}

func texts(description string) schema.ListAttribute {
	return schema.ListAttribute{Optional: true, ElementType: types.StringType, Description: description}
}

func labels(description string) schema.MapAttribute {
	return schema.MapAttribute{Optional: true, ElementType: types.StringType, Description: description}
}

func figure(description string) schema.Float64Attribute {
	return schema.Float64Attribute{Computed: true, Description: description}
}

func answered(description string) schema.ListAttribute {
	return schema.ListAttribute{Computed: true, ElementType: types.StringType, Description: description}
}

func (p *placements) Schema(_ context.Context, _ datasource.SchemaRequest, answer *datasource.SchemaResponse) {
	asked := schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
		"id":                   schema.StringAttribute{Required: true, Description: "Its id; it may be in the inventory already."},
		"vcpus":                schema.Int64Attribute{Optional: true, Description: "Virtual CPUs; needed, as memory_mb is, of an instance that the inventory has not, unless like names one."},
		"memory_mb":            number("Memory in MB."),
		"disk_gb":              number("Disk in GB."),
		"like":                 text("An instance of the inventory whose demand, workload and sensitivity it shares, and whose size where none is given."),
		"workload":             text("Name of a known workload."),
		"load":                 number("Offered load as a fraction of what it can do alone; 1.0 unless said."),
		"service":              text("What it is sensitive to: throughput (unless said) or latency."),
		"min_throughput_ratio": number("The share of its speed alone that it must keep, 0-1."),
		"max_latency_ratio":    number("The largest latency ratio that it accepts; 1.0 = as alone."),
		"max_time_short":       number("The part of the time, 0-1, for which it may be short of CPU."),
		"exclusive":            flag("It shares its host with no other instance."),
		"dedicated_vcpus":      schema.Int64Attribute{Optional: true, Description: "How many of its vCPUs have a physical CPU each that no other instance uses; 0 unless said."},
		"labels":               labels("Free texts, such as class or project."),
	}}
	candidate := schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"host":  schema.StringAttribute{Computed: true, Description: "The host."},
		"score": figure("By the objective; higher is better."),
		"throughput_ratio": schema.SingleNestedAttribute{
			Computed: true, Description: "What it keeps of its speed alone; 1.0 = all.",
			Attributes: map[string]schema.Attribute{
				"expected": figure("The expected ratio."),
				"lower":    figure("Lower end of the interval."),
				"upper":    figure("Upper end of the interval."),
			},
		},
		"tied_with": answered("Hosts whose difference lies within the uncertainty."),
		"pinning": schema.MapAttribute{
			Computed: true, ElementType: types.ListType{ElemType: types.Int64Type},
			Description: "vCPU to the pCPUs that suit it best there; null = none.",
		},
		"notes": answered("What must be known before the settings are followed."),
	}}
	placed := schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"host":       schema.StringAttribute{Computed: true, Description: "The host that is advised: that of the first candidate."},
		"degraded":   schema.BoolAttribute{Computed: true, Description: "The learned model failed and the analytic model answered."},
		"notes":      answered("What else to know."),
		"candidates": schema.ListNestedAttribute{Computed: true, NestedObject: candidate, Description: "Hosts that can take it, best first."},
	}}
	answer.Schema = schema.Schema{
		Description: "Asks where instances should go, each as if those before it were there, or all together; see order. " +
			"Nothing is held for them. An instance that finds no host is an error.",
		Attributes: map[string]schema.Attribute{
			"hosts":     texts("Answer only these hosts; all unless said."),
			"objective": text("worst (unless said): best for the most affected instance; total: combined score; pack: fewest hosts."),
			"limit":     schema.Int64Attribute{Optional: true, Description: "Most candidates given for each; 1 unless said."},
			"order": text("given (unless said): each where it suits best after those before it; joint: other orders and plans are " +
				"tried, too, and the answers that harm least together are kept."),
			"time_limit_s": number("Seconds after which a joint search tries nothing more; 5 unless said."),
			"placements": schema.MapNestedAttribute{
				Computed: true, NestedObject: placed, Description: "By the id of the instance.",
			},
		},
		// Blocks, because Terraform drops unknown attributes of objects: a misspelt limit would silently not count.
		Blocks: map[string]schema.Block{
			"instance": schema.ListNestedBlock{
				NestedObject: asked, Description: "An instance to place; they are answered in their order.",
				Validators: []validator.List{listvalidator.IsRequired(), listvalidator.SizeAtMost(mostAtOnce)},
			},
			"constraints": schema.SingleNestedBlock{
				Description: "What a host must satisfy.",
				Attributes: map[string]schema.Attribute{
					"labels":        labels("Every one of these labels."),
					"exclude":       texts("None of these hosts."),
					"affinity":      texts("Beside these instances."),
					"anti_affinity": texts("Apart from these instances."),
					"kind":          text("Only hosts of this hypervisor, such as kvm."),
					"allow_stale":   flag("Hosts without fresh data may answer, too."),
				},
			},
		},
	}
}

func (p *placements) Configure(_ context.Context, request datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	p.client, _ = request.ProviderData.(*client) // nil while the provider is only asked for its schema
}

func (p *placements) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	var asked model
	response.Diagnostics.Append(request.Config.Get(ctx, &asked)...)
	if response.Diagnostics.HasError() {
		return
	}
	question := rest.BatchBody{
		Instances: asked.Instances, Constraints: asked.Constraints, Objective: asked.Objective, Limit: asked.Limit,
		Order: asked.Order, TimeLimitS: asked.TimeLimitS,
	}
	if !asked.Hosts.IsNull() { // an empty list is no host, which is not the same as all
		hosts := []string{}
		response.Diagnostics.Append(asked.Hosts.ElementsAs(ctx, &hosts, false)...)
		question.Hosts = &hosts
	}
	answers, err := p.client.place(ctx, question)
	if err != nil {
		response.Diagnostics.AddError("Cotenant did not say where the instances should go", err.Error())
		return
	}
	asked.Placements = make(map[string]placement, len(answers))
	for number, answer := range answers {
		name := asked.Instances[number].Id
		if len(answer.Candidates) == 0 {
			response.Diagnostics.Append(noHost(name, answer))
			continue
		}
		place := placement{Host: answer.Candidates[0].Host, Degraded: answer.Degraded, Notes: answer.Notes}
		for _, one := range answer.Candidates {
			place.Candidates = append(place.Candidates, candidate{one, one.NewVm.ThroughputRatio})
		}
		asked.Placements[name] = place
	}
	if !response.Diagnostics.HasError() {
		response.Diagnostics.Append(response.State.Set(ctx, &asked)...)
	}
}

// noHost says why no host can take an instance, once for each code: a thousand hosts may be full for the same reason.
func noHost(name string, answer rest.Recommendation) diag.Diagnostic {
	counts, examples := map[string]int{}, map[string]string{}
	for _, rejected := range answer.Rejected {
		if counts[rejected.Code]++; counts[rejected.Code] == 1 {
			examples[rejected.Code] = rejected.Reason
		}
	}
	lines := make([]string, 0, len(counts)+1)
	for code, count := range counts {
		lines = append(lines, fmt.Sprintf("%d x %s: %s", count, code, examples[code]))
	}
	sort.Strings(lines)
	return diag.NewErrorDiagnostic("No host can take "+name, strings.Join(append(lines, answer.Notes...), "\n"))
}
