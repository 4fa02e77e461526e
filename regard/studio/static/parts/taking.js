/* A model from a ZIP file: dropped or chosen, given a name, and taken in. */
import { send } from "../api.js";
import { command, python, showCall } from "./call.js";
import { field, problemCard, section, waiting } from "./controls.js";
import { h, say, show } from "./dom.js";
import { dropArea } from "./drop.js";
import { short } from "./numbers.js";

const NAME = "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}"; // as the server wants it

/* A file's name as the name of a model. */
export const nameOf = file => file.replace(/\.zip$/i, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-._]+/, "").slice(0, 64) || "model";

export class Taking {
  /* `taken(name)` hears of a model that was taken in. */
  constructor(taken) {
    Object.assign(this, { taken, file: null });
    this.name = h("input", { type: "text", required: true, pattern: NAME, spellcheck: "false", autocomplete: "off", oninput: () => this.drawCall() });
    this.button = h("button", { class: "main", disabled: true }, "Take it in");
    this.said = h("div", { "aria-live": "polite" });
    this.call = h("div");
    this.form = h("form", { onsubmit: event => { event.preventDefault(); this.send(); } },
      dropArea("Drop a ZIP file here, or choose one", ".zip,application/zip", file => this.choose(file)),
      h("div", { class: "row wide" }, field("Name", this.name), this.button), this.said);
    this.element = section("Bring one in", h("p", {}, "A ZIP file of a bundle, as it is saved above; of a folder of Hugging Face with safetensors (GPT-2, BERT, LLaMA, Marian, ViT); or of weights of llama2.c with their tokenizer. It is put into the folder models."),
      this.form, this.call);
    this.drawCall();
  }

  choose(file) {
    this.file = file;
    this.name.value = nameOf(file.name);
    this.button.disabled = false;
    show(this.said, h("p", { class: "note" }, `${file.name}, ${short(file.size)}B`));
    this.drawCall();
  }

  async send() {
    const name = this.name.value;
    this.button.disabled = true;
    show(this.said, waiting("Taking it in"));
    try {
      const model = await send(`api/models?${new URLSearchParams({ name })}`, this.file, "application/zip");
      await this.taken(model.name);
      show(this.said, h("p", { class: "note" }, `${model.name} is here: ${model.title}.`));
      say(`${model.name} is here.`);
    } catch (error) {
      show(this.said, problemCard(error));
    } finally {
      this.button.disabled = false;
    }
  }

  drawCall() {
    const name = this.name.value || "mine", file = this.file?.name ?? "mine.zip", place = `models/${name}`;
    show(this.call, showCall({
      path: `api/models?${new URLSearchParams({ name })}`, file, command: command("regard", "import", file, "-o", place),
      lines: ["import regard", "from regard.interop import import_archive", "", `import_archive(${python(file)}, ${python(place)})`, `model = regard.load(${python(place)})`],
    }));
  }
}
