// The OpenAPI document as a page: each route with its parameters, body and responses. Loads nothing from other hosts.

import { get } from "./api.js";

const routes = document.querySelector("#routes");

function node(name, text = "", ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

// A schema in a few words: "integer", "list of string", the name of a model as a link to its fields.
function kind(schema = {}) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    const link = node("a", name);
    link.href = `#${name}`;
    return link;
  }
  if (schema.enum || schema.const) return node("span", [schema.const ?? schema.enum].flat().join(" | "));
  if (schema.anyOf) return node("span", "", ...schema.anyOf.flatMap((each, at) => [at ? " or " : "", kind(each)]));
  if (schema.type === "array") return node("span", "list of ", kind(schema.items));
  return node("span", schema.format === "binary" ? "a file" : schema.type ?? "anything");
}

function table(title, rows) {
  if (!rows.length) return "";
  const body = rows.map(([name, type, required, told]) =>
    node("tr", "", node("th", name), node("td", "", type), node("td", required ? "required" : ""), node("td", told ?? "")),
  );
  return node("table", "", node("caption", title), node("tbody", "", ...body));
}

const fields = (schema) =>
  Object.entries(schema.properties ?? {}).map(([name, each]) => [
    name, kind(each), (schema.required ?? []).includes(name), each.description,
  ]);

function contents(content = {}) {
  return Object.entries(content).map(([type, { schema }]) => [type, kind(schema), false, ""]);
}

function route(method, path, said) {
  const summary = node("summary", "", node("strong", method.toUpperCase()), " ", node("code", path));
  summary.append(" ", node("span", said.summary));
  const given = (said.parameters ?? []).map((each) => [
    `${each.name} (${each.in})`, kind(each.schema), each.required, each.description ?? each.schema?.description,
  ]);
  const answers = Object.entries(said.responses).filter(([status]) => status.startsWith("2"));
  return node(
    "details", "", summary, node("p", said.description ?? ""), table("Parameters", given),
    table("Body", contents(said.requestBody?.content)),
    ...answers.map(([status, each]) => table(`Answer ${status}`, contents(each.content))),
  );
}

function show(document_) {
  document.querySelector("#title").textContent = `${document_.info.title} ${document_.info.version}: HTTP interface`;
  document.querySelector("#about").textContent = document_.info.description;
  const groups = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, said] of Object.entries(methods)) {
      const group = said.tags?.[0] ?? "other";
      groups.set(group, [...(groups.get(group) ?? []), route(method, path, said)]);
    }
  }
  for (const [group, found] of groups) routes.append(node("section", "", node("h2", group), ...found));
  const models = Object.entries(document_.components.schemas).map(([name, schema]) => {
    const made = node("section", "", node("h3", name), node("p", schema.description ?? ""), table("Fields", fields(schema)));
    made.id = name;
    return made;
  });
  routes.append(node("section", "", node("h2", "models"), ...models));
}

try {
  show(await get("/v1/openapi.json"));
} catch (error) {
  document.querySelector("#alert").textContent = `The OpenAPI document cannot be read: ${error.message}`;
}
