// A combobox for classes: suggestions below it, arrows to choose, Enter to take.

import { element } from "/web/draw.js";
import { rank } from "/web/find.js";

let made = 0;

export class Finder {
  // `names()` are the classes now; `choose(name)` is called with the one taken; `leave()` when Esc is pressed.
  constructor(place, { names, choose, leave = () => {}, add = null }) {
    Object.assign(this, { names, choose, leave, add, found: [], active: -1 });
    const id = `finder-${++made}`;
    this.list = element("ul", { role: "listbox", id: `${id}-list`, "aria-label": "Classes", hidden: true });
    this.input = element("input", {
      id,
      role: "combobox",
      "aria-expanded": "false",
      "aria-controls": `${id}-list`,
      "aria-autocomplete": "list",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      maxlength: 200,
      placeholder: "Type to find a class",
      oninput: () => this.show(),
      onfocus: () => this.show(),
      onblur: () => this.close(),
      onkeydown: (event) => this.key(event),
    });
    const label = element("label", { for: id }, "Another class ", element("kbd", { "aria-hidden": "true" }, "/"));
    this.said = element("p", { class: "unseen", role: "status" });
    place.replaceChildren(label, this.input, this.list, this.said);
  }

  focus() {
    this.input.focus();
  }

  clear() {
    this.input.value = "";
    this.close();
  }

  show() {
    const typed = this.input.value.trim();
    this.found = rank(typed, this.names(), 8).map(({ name }) => ({ name, take: () => this.choose(name) }));
    if (this.add && typed && !this.found.some(({ name }) => name.toLowerCase() === typed.toLowerCase()))
      this.found.push({ name: `Add “${typed}” as a new class`, take: () => this.add(typed), fresh: true });
    this.list.replaceChildren(
      ...this.found.map(({ name, take, fresh }, index) =>
        element(
          "li",
          {
            role: "option",
            id: `${this.input.id}-${index}`,
            class: fresh ? "fresh" : null,
            onmousedown: (event) => event.preventDefault(), // or the box loses the focus first
            onclick: () => this.take(take),
          },
          name,
        ),
      ),
    );
    this.list.hidden = !this.found.length;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.mark(typed && this.found.length ? 0 : -1);
    this.said.textContent = typed ? `${this.found.length} suggestions` : "";
  }

  mark(index) {
    this.active = index;
    [...this.list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === index)));
    const item = this.list.children[index];
    if (!item) return this.input.removeAttribute("aria-activedescendant");
    this.input.setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const last = this.found.length - 1;
    const moves = {
      ArrowDown: () => (this.active >= last ? 0 : this.active + 1),
      ArrowUp: () => (this.active <= 0 ? last : this.active - 1),
    };
    if (event.key in moves && last >= 0) {
      if (this.list.hidden) this.show();
      this.mark(moves[event.key]());
    } else if (event.key === "Enter" && this.found[this.active]) this.take(this.found[this.active].take);
    else if (event.key === "Escape" && (this.input.value || !this.list.hidden)) {
      this.clear();
      this.leave();
    } else return; // with nothing to close here, Esc closes the dialog around it
    event.preventDefault();
  }

  take(act) {
    this.clear();
    act();
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
