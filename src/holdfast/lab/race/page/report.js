// Draws every chart in the page's own colours, and again when the reader's theme changes.
"use strict";
(() => {
  const variable = /^var\((--[a-z0-9-]+)\)$/;

  function coloured(value, style) {
    if (Array.isArray(value)) return value.map((item) => coloured(item, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, style)]));
    }
    const name = typeof value === "string" ? variable.exec(value) : null;
    return name ? style.getPropertyValue(name[1]).trim() : value;
  }

  const settings = {
    displaylogo: false,
    responsive: true,
    // Without a pointer the buttons would always stand over the legend.
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    showSendToCloud: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { scale: 2 },
  };

  function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const place of document.querySelectorAll(".chart")) {
      const figure = coloured(JSON.parse(place.querySelector("script").textContent), style);
      Plotly.react(place.querySelector(".drawing"), figure.data, figure.layout, settings);
    }
  }

  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
