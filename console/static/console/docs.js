// The API's page: Swagger UI over the schema that the page names.
SwaggerUIBundle({
  url: document.getElementById("docs").dataset.schema,
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "list",
  filter: true,
  persistAuthorization: false,
  displayRequestDuration: true,
  validatorUrl: null,
});
