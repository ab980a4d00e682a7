// The provider for Terraform and OpenTofu, which starts this program and speaks with it by its own protocol.
package main

import (
	"context"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"terraform-provider-cotenant/provider"
)

func main() {
	options := providerserver.ServeOpts{Address: "registry.terraform.io/cotenant/cotenant", ProtocolVersion: 6}
	if err := providerserver.Serve(context.Background(), provider.New, options); err != nil {
		log.Fatal(err)
	}
}
