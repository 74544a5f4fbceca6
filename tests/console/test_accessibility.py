"""Text that can be read: its contrast to the background, in light and dark mode."""

from time import time

from playwright.sync_api import Page, expect

from logbrook.client import Client
from logbrook.records.builder import build_batch
from logbrook.records.record import Record
from logbrook.testing import Broker
from tests.console.conftest import Opened

expect.set_options(timeout=15_000)

# Returns visible texts whose contrast is below 4.5, or below 3 if they are large (WCAG 2.1, level AA). Colors are
# converted by a canvas, because they may be in any notation.
_UNREADABLE = """() => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true})
    const pixel = color => {
        canvas.clearRect(0, 0, 1, 1)
        canvas.fillStyle = color
        canvas.fillRect(0, 0, 1, 1)
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data
        return [red, green, blue, alpha / 255]
    }
    const blend = (top, alpha, bottom) => [0, 1, 2].map(n => top[n] * alpha + bottom[n] * (1 - alpha))
    const once = compute => {
        const results = new Map()
        return key => {
            if (!results.has(key)) results.set(key, compute(key))
            return results.get(key)
        }
    }
    const rgba = once(pixel)
    const background = once(element => {
        if (element === null) return [255, 255, 255]
        const color = rgba(getComputedStyle(element).backgroundColor)
        return blend(color, color[3], background(element.parentElement))
    })
    const opacity = once(element => element === null ? 1
        : parseFloat(getComputedStyle(element).opacity) * opacity(element.parentElement))
    const luminance = color => {
        const [red, green, blue] = color.map(part => part / 255)
            .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
    const unreadable = []
    for (const element of document.querySelectorAll("#app *:not(.q-icon)")) {
        const text = [...element.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join("")
        if (!text || !element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue
        const style = getComputedStyle(element), behind = background(element), color = rgba(style.color)
        const seen = blend(color, color[3] * opacity(element), behind)
        const [light, dark] = [luminance(seen), luminance(behind)].sort((a, b) => b - a)
        const contrast = (light + 0.05) / (dark + 0.05)
        const size = parseFloat(style.fontSize)
        const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700)
        if (contrast < (isLarge ? 3 : 4.5)) unreadable.push(`${text}: ${contrast.toFixed(1)}`)
    }
    return unreadable
}"""


def unreadable(page: Page) -> dict[str, list[str]]:
    """Return the texts of the page that cannot be read, in light and in dark mode."""
    texts: dict[str, list[str]] = {}
    try:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            expect(page.locator(f"body.body--{scheme}")).to_have_count(1)
            texts[scheme] = page.evaluate(_UNREADABLE)
    finally:
        page.emulate_media(color_scheme="light")
    return {scheme: unreadable_texts for scheme, unreadable_texts in texts.items() if unreadable_texts}


def test_text_has_enough_contrast(broker: Broker, client: Client, console: str, open_page: Opened) -> None:
    broker.create_topic("contrast")
    client.produce("contrast", 0, build_batch([Record(b"key", b'{"a": 1}', (), round(time() * 1000))]))
    texts = {"/topics/contrast": "1 shown; these are all", "/pipelines": "Last error", "/": "Busiest topics"}
    page = open_page(console)
    for path, text in texts.items():
        page.goto(console + path)
        expect(page.get_by_text(text).first).to_be_visible()
        assert unreadable(page) == {}, path
