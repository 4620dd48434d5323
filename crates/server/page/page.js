"use strict";

const element = (id) => document.getElementById(id);

element("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  element("state").textContent = "Searching";
  element("answer").textContent = "";
  element("provenance").replaceChildren();
  try {
    const response = await fetch("v1/answer", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ question: element("question").value }),
    });
    const found = await response.json();
    if (!response.ok) throw new Error(found.error);
    element("answer").textContent = found.answer;
    for (const item of found.provenance) {
      const line = document.createElement("li");
      line.textContent = `${item.title}: ${item.text}`;
      element("provenance").append(line);
    }
    element("state").textContent = `${found.provenance.length} passages`;
  } catch (error) {
    element("state").textContent = error.message;
  }
});
