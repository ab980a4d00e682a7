// Package provider is Cotenant's provider for Terraform and OpenTofu: one data source that asks where instances go.
package provider

import (
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

type cotenant struct{}

// New gives the provider as providerserver takes it.
func New() provider.Provider { return cotenant{} }

type settings struct {
	URL       types.String `tfsdk:"url"`
	TokenFile types.String `tfsdk:"token_file"`
}

func (cotenant) Metadata(_ context.Context, _ provider.MetadataRequest, answer *provider.MetadataResponse) {
	answer.TypeName = "cotenant"
}

func (cotenant) Schema(_ context.Context, _ provider.SchemaRequest, answer *provider.SchemaResponse) {
	answer.Schema = schema.Schema{
		Description: "Asks a Cotenant service where instances should go.",
		Attributes: map[string]schema.Attribute{
			"url": schema.StringAttribute{
				Optional:    true,
				Description: "The service, such as https://cotenant.example; else the variable COTENANT_SERVER.",
			},
			"token_file": schema.StringAttribute{
				Optional: true,
				Description: "A file that holds a token of scope read; else the token is the variable COTENANT_TOKEN. A file " +
					"that others may read or change is refused. There is no argument for the token itself, which would be in plans.",
			},
		},
	}
}

func (cotenant) Configure(ctx context.Context, request provider.ConfigureRequest, answer *provider.ConfigureResponse) {
	var given settings
	answer.Diagnostics.Append(request.Config.Get(ctx, &given)...)
	if answer.Diagnostics.HasError() {
		return
	}
	if given.URL.IsUnknown() || given.TokenFile.IsUnknown() {
		answer.Diagnostics.AddError("Cotenant cannot be asked yet",
			"url or token_file is known only after apply. Give values that are known when a plan is made.")
		return
	}
	url := given.URL.ValueString()
	if given.URL.IsNull() {
		url = os.Getenv("COTENANT_SERVER")
	}
	if url == "" {
		answer.Diagnostics.AddAttributeError(path.Root("url"), "Which Cotenant service?", "Give url, or set COTENANT_SERVER.")
		return
	}
	asking, err := newClient(url, given.TokenFile.ValueString())
	if err != nil {
		answer.Diagnostics.AddError("Cotenant cannot be asked", err.Error())
		return
	}
	answer.DataSourceData = asking
}

func (cotenant) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{newPlacements}
}

func (cotenant) Resources(context.Context) []func() resource.Resource { return nil }
